//! What the proxy understands of a command: its name, its script, its keys.
//!
//! It deliberately does not know most commands' arguments. Invariant: never wrong about scripts; for any other
//! command the keys are a guess that suits the plain ones (GET, SET, DEL, …).

/// One command as it was on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Counts commands over all connections of the proxy, in order of arrival.
    pub number: u64,
    /// Counts connections of the proxy.
    pub connection: u64,
    /// In capitals.
    pub name: String,
    /// EVALSHA: the SHA-1; EVAL: the text; FCALL: the function.
    pub script: Option<String>,
    pub keys: Vec<String>,
    /// The server has answered. Says nothing about whether the client has got it.
    pub answered: bool,
}

impl Command {
    pub(crate) fn new(number: u64, connection: u64, words: &[Vec<u8>]) -> Command {
        let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
        let name = words.first().map(text).unwrap_or_default().to_ascii_uppercase();
        let rest: Vec<String> = words.iter().skip(1).map(text).collect();
        let (script, keys) = match name.as_str() {
            "EVAL" | "EVALSHA" | "EVAL_RO" | "EVALSHA_RO" | "FCALL" | "FCALL_RO" => {
                let count = rest.get(1).and_then(|count| count.parse().ok()).unwrap_or(0);
                (rest.first().cloned(), rest.into_iter().skip(2).take(count).collect())
            }
            "DEL" | "UNLINK" | "EXISTS" | "MGET" | "TOUCH" | "WATCH" => (None, rest),
            "AUTH" | "CLIENT" | "CLUSTER" | "COMMAND" | "CONFIG" | "DBSIZE" | "DISCARD" | "ECHO" | "EXEC"
            | "FLUSHALL" | "FLUSHDB" | "HELLO" | "INFO" | "MULTI" | "PING" | "PUBLISH" | "QUIT"
            | "READONLY" | "ROLE" | "SCAN" | "SCRIPT" | "SELECT" | "TIME" | "WAIT" => (None, Vec::new()),
            _ => (None, rest.into_iter().take(1).collect()),
        };
        Command { number, connection, name, script, keys, answered: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> Command {
        Command::new(0, 0, &line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn reads_script_and_keys() {
        let acquire = command("evalsha abc 2 k1 k2 argument");
        assert_eq!((acquire.name.as_str(), acquire.script.as_deref()), ("EVALSHA", Some("abc")));
        assert_eq!(acquire.keys, ["k1", "k2"]);
        assert_eq!(command("EVALSHA abc 0 argument").keys, [""; 0]);
        assert_eq!(command("EVALSHA").keys, [""; 0]);
    }

    #[test]
    fn guesses_the_keys_of_plain_commands() {
        assert_eq!(command("SET k v PX 5").keys, ["k"]);
        assert_eq!(command("DEL a b").keys, ["a", "b"]);
        assert_eq!(command("CONFIG SET maxmemory 1").keys, [""; 0]);
    }
}
