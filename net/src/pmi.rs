//! PMI-1's text: the messages between a process and its launcher, one line each, without I/O.
//!
//! A line is a list of `key=value` separated by spaces; `cmd` names the message. A process sends
//! `cmd=init`, asks for the limits and for the name of its job's key-value space, puts pairs
//! there, waits at a barrier, gets the pairs of others, and sends `cmd=finalize`. PMI-1 has no
//! standard. This file follows the launchers of MPICH, Intel MPI and Slurm.
//!
//! Values are short and may not contain spaces. So [`values`] writes bytes as hexadecimal digits
//! into several values, and [`Gathered`] reads them. Input from a launcher or another process is
//! bounded and checked; a violation is an error, never a panic.

use std::fmt;

use crate::hex;

/// Longest line that is read. Launchers' values have at most a few KiB.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// Most bytes that one process gives in one exchange.
pub const GIVEN_BYTES_MAX: usize = 16 << 20;
/// Longest line that is written. Clients' lines have never been longer than this.
const COMMAND_BYTES_MAX: usize = 1000;
/// Maximum length of the name of a key-value space, so that lines have room for it.
const NAME_BYTES_MAX: usize = 512;
/// Longest key that is used, with its closing zero.
const KEY_BYTES_MAX: usize = 40;
/// Shortest limit of values with which a job can be formed.
const VALUE_BYTES_MIN: usize = 16;

/// A message of a process to its launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command<'a> {
    /// Names this process at a launcher's port.
    InitAck(u32),
    /// Begins, with version 1.1.
    Init,
    /// Asks for the limits.
    GetMaxes,
    /// Asks for the name of the job's key-value space.
    GetName,
    /// Puts a pair into a space.
    Put(&'a str, &'a str, &'a str),
    /// Asks for the value of a key in a space.
    Get(&'a str, &'a str),
    /// Waits for all processes.
    Barrier,
    /// Ends all processes with a status.
    Abort(u8),
    /// Leaves.
    Finalize,
}

impl Command<'_> {
    /// The line to write.
    pub fn line(&self) -> String {
        match self {
            Self::InitAck(id) => format!("cmd=initack pmiid={id}\n"),
            Self::Init => "cmd=init pmi_version=1 pmi_subversion=1\n".into(),
            Self::GetMaxes => "cmd=get_maxes\n".into(),
            Self::GetName => "cmd=get_my_kvsname\n".into(),
            Self::Put(name, key, value) => {
                format!("cmd=put kvsname={name} key={key} value={value}\n")
            }
            Self::Get(name, key) => format!("cmd=get kvsname={name} key={key}\n"),
            Self::Barrier => "cmd=barrier_in\n".into(),
            Self::Abort(status) => format!("cmd=abort exitcode={status}\n"),
            Self::Finalize => "cmd=finalize\n".into(),
        }
    }
}

/// A message of the launcher to a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// To [`Command::InitAck`].
    Acknowledged,
    /// After that, at a port: a setting and its value.
    Set(String, String),
    /// To [`Command::Init`].
    Begun,
    /// To [`Command::GetMaxes`]: bytes of the longest key and value, each with a closing zero.
    Maxes {
        /// Of a key.
        key_bytes: usize,
        /// Of a value.
        value_bytes: usize,
    },
    /// To [`Command::GetName`].
    Name(String),
    /// To [`Command::Put`].
    Put,
    /// To [`Command::Get`]; none where no such key is.
    Value(Option<String>),
    /// To [`Command::Barrier`]: all processes have come.
    AllCame,
    /// To [`Command::Finalize`].
    Finalized,
}

/// A protocol violation by a launcher or another process, as a phrase with the received text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it sends {}", self.0)
    }
}

impl Violation {
    fn of(what: &str, line: &str) -> Self {
        const SHOWN: usize = 80;
        let printable = |c: char| if c.is_control() { '?' } else { c };
        let shown: String = line.chars().take(SHOWN).map(printable).collect();
        Self(format!("{what} in {shown:?}"))
    }
}

impl Reply {
    /// Reads a line, without its end. Keys that are not known are passed over.
    pub fn parse(line: &str) -> Result<Self, Violation> {
        let field = |key: &str| {
            line.split(' ').find_map(|field| field.strip_prefix(key)?.strip_prefix('='))
        };
        let wrong = |what: &str| Err(Violation::of(what, line));
        let needed =
            |key: &str| field(key).ok_or_else(|| Violation::of(&format!("no {key}"), line));
        let size = |key: &str| {
            let value = needed(key)?.parse::<usize>();
            value.map_err(|_| Violation::of(&format!("no number {key}"), line))
        };
        let is_refused = match field("rc") {
            None => false,
            Some(rc) => match rc.parse::<i32>() {
                Ok(rc) => rc != 0,
                Err(_) => return wrong("no number rc"),
            },
        };
        let command = needed("cmd")?;
        if command == "get_result" {
            return match is_refused {
                true => Ok(Self::Value(None)),
                false => Ok(Self::Value(Some(needed("value")?.to_owned()))),
            };
        }
        if is_refused {
            return wrong("a refusal");
        }
        match command {
            "initack" => Ok(Self::Acknowledged),
            "set" => {
                let names = ["size", "rank", "debug"];
                let set = names.iter().find_map(|name| Some((*name, field(name)?)));
                set.map_or_else(
                    || wrong("no setting"),
                    |(name, value)| Ok(Self::Set(name.to_owned(), value.to_owned())),
                )
            }
            "response_to_init" => match needed("pmi_version")? {
                "1" => Ok(Self::Begun),
                _ => wrong("another version than 1"),
            },
            "maxes" => {
                Ok(Self::Maxes { key_bytes: size("keylen_max")?, value_bytes: size("vallen_max")? })
            }
            "my_kvsname" => {
                let name = needed("kvsname")?;
                let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
                    && name.bytes().all(|byte| byte.is_ascii_graphic());
                if is_name { Ok(Self::Name(name.to_owned())) } else { wrong("no name") }
            }
            "put_result" => Ok(Self::Put),
            "barrier_out" => Ok(Self::AllCame),
            "finalize_ack" => Ok(Self::Finalized),
            _ => wrong("an unknown message"),
        }
    }
}

/// Puts a launcher's bytes together to lines.
#[derive(Debug, Default)]
pub struct Lines {
    bytes: Vec<u8>,
}

impl Lines {
    /// Appends bytes that were read from the connection.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next reply, if its line is complete.
    pub fn reply(&mut self) -> Option<Result<Reply, Violation>> {
        let Some(end) = self.bytes.iter().position(|&byte| byte == b'\n') else {
            let is_long = self.bytes.len() > LINE_BYTES_MAX;
            return is_long
                .then(|| Err(Violation(format!("a line of over {LINE_BYTES_MAX} bytes"))));
        };
        let line: Vec<u8> = self.bytes.drain(..=end).collect();
        Some(match std::str::from_utf8(&line[..end]) {
            Ok(line) => Reply::parse(line.trim_end_matches(['\r', '\0'])),
            Err(_) => Err(Violation("a line that is no text".into())),
        })
    }
}

/// Returns the maximum length of a value in a key-value space with these limits, or `None` if a
/// job cannot be formed with them.
pub fn value_bytes(name: &str, key_bytes: usize, value_bytes: usize) -> Option<usize> {
    let longest = Command::Put(name, "", "").line().len() + KEY_BYTES_MAX;
    let bytes = value_bytes.saturating_sub(1).min(COMMAND_BYTES_MAX.saturating_sub(longest));
    (bytes >= VALUE_BYTES_MIN && key_bytes >= KEY_BYTES_MAX).then_some(bytes)
}

/// Returns the key of one part of a rank's contribution to an exchange.
pub fn key(exchange: u32, rank: u32, part: usize) -> String {
    let key = format!("nagaya-{exchange}-{rank}-{part}");
    assert!(key.len() < KEY_BYTES_MAX, "three numbers");
    key
}

/// Bytes as values of at most this length: their number, a dot and their hexadecimal digits, cut
/// into parts.
pub fn values(bytes: &[u8], value_bytes: usize) -> Vec<String> {
    assert!(value_bytes >= VALUE_BYTES_MIN, "`value_bytes` gives no less");
    let text = format!("{}.{}", bytes.len(), hex::encode(bytes));
    let part = |part: &[u8]| String::from_utf8(part.to_vec()).expect("digits");
    text.as_bytes().chunks(value_bytes).map(part).collect()
}

/// The contribution of a rank, as far as its values have arrived.
#[derive(Debug, Default)]
pub struct Gathered {
    text: String,
    /// Number of values that have arrived.
    parts: usize,
    /// Length of the whole text, and the offset of its digits.
    whole: Option<(usize, usize)>,
}

impl Gathered {
    /// Returns the number of values that have arrived.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// Takes the next value. The bytes, if it was the last.
    pub fn push(&mut self, value: &str) -> Result<Option<Vec<u8>>, Violation> {
        self.text.push_str(value);
        self.parts += 1;
        let wrong = |what: &str| Violation::of(what, value);
        let (length, begin) = match self.whole {
            Some(whole) => whole,
            None => {
                let (number, _) = value.split_once('.').ok_or_else(|| wrong("no length"))?;
                let bytes = number.parse().ok().filter(|&bytes: &usize| bytes <= GIVEN_BYTES_MAX);
                let bytes = bytes.ok_or_else(|| wrong("a wrong length"))?;
                *self.whole.insert((number.len() + 1 + 2 * bytes, number.len() + 1))
            }
        };
        if value.is_empty() || self.text.len() > length {
            return Err(wrong("a value of another length"));
        }
        if self.text.len() < length {
            return Ok(None);
        }
        hex::decode(&self.text[begin..]).map(Some).ok_or_else(|| wrong("no digits"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(text: &str) -> Result<Reply, Violation> {
        Ok(Reply::Value(Some(text.into())))
    }

    /// As MPICH 4.0, MPICH 5.0, Intel MPI 2021 and Slurm 22.05 write them.
    #[test]
    fn launchers_replies_are_understood() {
        let maxes = |value_bytes| Ok(Reply::Maxes { key_bytes: 64, value_bytes });
        let name = |name: &str| Ok(Reply::Name(name.into()));
        for (line, reply) in [
            ("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0", Ok(Reply::Begun)),
            ("cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2", Ok(Reply::Begun)),
            ("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=4096", maxes(4096)),
            ("cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024", maxes(1024)),
            ("cmd=my_kvsname kvsname=kvs_1_0_7_vm", name("kvs_1_0_7_vm")),
            ("cmd=my_kvsname rc=0 kvsname=1.0", name("1.0")),
            ("cmd=put_result rc=0 msg=success", Ok(Reply::Put)),
            ("cmd=put_result rc=0", Ok(Reply::Put)),
            ("cmd=get_result rc=0 msg=success value=(vector,(0,1,1))", value("(vector,(0,1,1))")),
            ("cmd=get_result rc=0 value=a=b", value("a=b")),
            ("cmd=get_result rc=0 value=", value("")),
            ("cmd=get_result rc=-1 msg=key_n_not_found value=unknown", Ok(Reply::Value(None))),
            ("cmd=get_result rc=1", Ok(Reply::Value(None))),
            ("cmd=barrier_out", Ok(Reply::AllCame)),
            ("cmd=barrier_out tag=0", Ok(Reply::AllCame)),
            ("cmd=finalize_ack rc=0", Ok(Reply::Finalized)),
            ("cmd=initack rc=0", Ok(Reply::Acknowledged)),
            ("cmd=set size=4", Ok(Reply::Set("size".into(), "4".into()))),
        ] {
            assert_eq!(Reply::parse(line), reply, "{line}");
        }
    }

    #[test]
    fn violations_quote_the_received_bytes() {
        for (line, why) in [
            ("", "no cmd in \"\""),
            ("hello world", "no cmd in \"hello world\""),
            ("xcmd=barrier_out", "no cmd in \"xcmd=barrier_out\""),
            ("cmd=launch", "an unknown message in \"cmd=launch\""),
            ("cmd=put_result rc=-1", "a refusal in \"cmd=put_result rc=-1\""),
            ("cmd=put_result rc=one", "no number rc in \"cmd=put_result rc=one\""),
            ("cmd=get_result rc=0", "no value in \"cmd=get_result rc=0\""),
            ("cmd=maxes keylen_max=64", "no vallen_max in \"cmd=maxes keylen_max=64\""),
            ("cmd=response_to_init pmi_version=2 rc=0", "another version than 1 in "),
            ("cmd=my_kvsname kvsname=", "no name in "),
            ("cmd=my_kvsname kvsname=a\tb", "no name in \"cmd=my_kvsname kvsname=a?b\""),
            ("cmd=set", "no setting in \"cmd=set\""),
        ] {
            let violation = Reply::parse(line).expect_err(line);
            assert!(violation.0.starts_with(why), "{line}: {violation:?}");
        }
        let long = Reply::parse(&"y".repeat(LINE_BYTES_MAX)).expect_err("no message");
        assert!(long.0.len() < 200, "a line of an error is short");
    }

    #[test]
    fn a_line_that_never_ends_is_a_violation() {
        let mut lines = Lines::default();
        for _ in 0..LINE_BYTES_MAX / 1024 {
            lines.push(&[b'a'; 1024]);
            assert_eq!(lines.reply(), None);
        }
        lines.push(b"a");
        assert!(lines.reply().expect("too long").is_err());
    }

    #[test]
    fn limits_that_are_too_low_form_no_job() {
        assert_eq!(value_bytes("kvs", 64, 256), Some(255));
        assert!(value_bytes("kvs", 64, 4096).expect("enough") > 800);
        assert_eq!(value_bytes("kvs", 64, 0), None);
        assert_eq!(value_bytes("kvs", 8, 1024), None);
        let longest = "n".repeat(NAME_BYTES_MAX);
        assert!(value_bytes(&longest, 64, usize::MAX).is_some());
    }

    #[test]
    fn commands_fit_into_a_line() {
        let longest = "n".repeat(NAME_BYTES_MAX);
        for name in ["k", &longest] {
            let bytes = value_bytes(name, usize::MAX, usize::MAX).expect("enough");
            let (key, value) = (key(u32::MAX, u32::MAX, GIVEN_BYTES_MAX), "f".repeat(bytes));
            let line = Command::Put(name, &key, &value).line();
            assert!(line.len() <= COMMAND_BYTES_MAX, "{}", line.len());
        }
    }

    #[test]
    fn values_of_others_are_checked() {
        let fails = |values: &[&str]| {
            let mut gathered = Gathered::default();
            let mut last = Ok(None);
            for value in values {
                last = gathered.push(value);
            }
            assert!(last.is_err(), "{values:?}: {last:?}");
        };
        fails(&[""]);
        fails(&["abc"]);
        fails(&["1"]);
        fails(&["-1.00"]);
        fails(&["1.0g"]);
        fails(&["1.000"]);
        fails(&["2.00", ""]);
        fails(&["2.00", "000"]);
        fails(&["2.00", "0\u{e9}"]);
        fails(&["99999999999999999999.00"]);
        fails(&[&format!("{}.00", GIVEN_BYTES_MAX + 1)]);
        assert_eq!(Gathered::default().push("0."), Ok(Some(vec![])));
    }

    proptest! {
        #[test]
        fn any_bytes_arrive(bytes: Vec<u8>, value_bytes in VALUE_BYTES_MIN..200) {
            let values = values(&bytes, value_bytes);
            let mut gathered = Gathered::default();
            let (last, first) = values.split_last().expect("at least a length");
            for value in first {
                prop_assert!(value.len() == value_bytes && !value.contains(' '));
                prop_assert_eq!(gathered.push(value), Ok(None));
            }
            prop_assert!(last.len() <= value_bytes);
            prop_assert_eq!(gathered.push(last), Ok(Some(bytes)));
        }

        #[test]
        fn any_text_is_a_reply_or_a_violation(text in "\\PC*") {
            let _ = Reply::parse(&text);
        }

        #[test]
        fn fields_in_any_order_and_number_are_a_reply_or_a_violation(
            fields in proptest::collection::vec(
                ("(cmd|rc|value|kvsname|keylen_max|vallen_max|size|pmi_version|x)",
                 "(|-1|0|1|99999999999999999999|get_result|maxes|my_kvsname|set|\\PC{0,8})"), 0..8)
        ) {
            let fields: Vec<_> = fields.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let _ = Reply::parse(&fields.join(" "));
        }

        /// However the launcher's bytes are cut, the replies are the same.
        #[test]
        fn lines_do_not_depend_on_how_they_are_cut(
            bytes: Vec<u8>,
            text in "(cmd=(put_result|barrier_out|get_result value=[a-z]{0,9}) ?\n?){0,8}",
            cuts in proptest::collection::vec(1usize..20, 1..20)
        ) {
            let bytes = [text.as_bytes(), &bytes[..], b"\n"].concat();
            let mut whole = Lines::default();
            whole.push(&bytes);
            let expected: Vec<_> = std::iter::from_fn(|| whole.reply()).collect();
            let (mut lines, mut replies, mut at) = (Lines::default(), Vec::new(), 0);
            for cut in cuts.iter().cycle() {
                let end = bytes.len().min(at + cut);
                lines.push(&bytes[at..end]);
                replies.extend(std::iter::from_fn(|| lines.reply()));
                at = end;
                if at == bytes.len() {
                    break;
                }
            }
            prop_assert_eq!(replies, expected);
        }

        #[test]
        fn values_of_any_text_are_bytes_or_a_violation(
            values in proptest::collection::vec("([0-9]{1,3}\\.)?([0-9a-f]{0,8}|\\PC{0,4})", 0..6)
        ) {
            let mut gathered = Gathered::default();
            for value in values {
                if gathered.push(&value).is_err() {
                    break;
                }
            }
        }
    }
}
