-- Whether scripts may write here, asked without leaving anything behind.
return redis.call('SET', KEYS[1], '1', 'PX', 1000)
