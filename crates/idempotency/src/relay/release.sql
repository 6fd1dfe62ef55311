-- Nothing is left to do for the subscriber $1: given back, by the token $2.
UPDATE event_subscribers SET not_before = now() WHERE id = $1 AND claim = $2
