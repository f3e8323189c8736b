//! Host files: the hosts with which a virtual machine starts, and options for hosts that are
//! added later. The syntax is that of stock PVM (pvmd(1)).
//!
//! ```text
//! # a comment
//! * ep=$HOME/bin wd=/work      defaults, from here on; the last ones also for hosts added later
//! one sp=2000                  a host
//! & two lo=guest               a host that is not started until somebody adds it
//! ```

use std::fmt;

use launch::ssh::is_name;

/// Largest speed, as in stock PVM.
const SPEED_MAX: i32 = 1_000_000;

/// Default speed of a host.
pub const SPEED: i32 = 1000;

/// The options of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostOptions {
    /// The login there (lo=).
    pub login: Option<String>,
    /// The daemon's program there (dx=).
    pub program: Option<String>,
    /// Directories searched for programs (ep=).
    pub path: Option<String>,
    /// Working directory of programs (wd=).
    pub directory: Option<String>,
    /// The program that runs tasks under a debugger (bx=).
    pub debugger: Option<String>,
    /// Its relative speed (sp=).
    pub speed: Option<i32>,
    /// Its name or address on the network (ip=).
    pub address: Option<String>,
    /// The virtual machine's ID there (id=).
    pub vmid: Option<String>,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its options, defaults included.
    pub options: HostOptions,
    /// True if the virtual machine starts with it.
    pub starts: bool,
}

/// A host file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFile {
    /// Its hosts, in order.
    pub hosts: Vec<Host>,
    /// Options of hosts that the file does not name.
    pub defaults: HostOptions,
}

/// A syntax error in a host file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// The error.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.what)
    }
}

impl HostOptions {
    /// Reads options from words of the form `key=value`.
    fn read<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> Result<(), String> {
        for word in words {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| format!("{word:?} is not an option KEY=VALUE"))?;
            let text = Some(value.to_string());
            match key {
                "lo" if !is_name(value) => {
                    return Err(format!("lo={value}: {value:?} is not a login"));
                }
                "ip" if !is_name(value) => {
                    return Err(format!(
                        "ip={value}: {value:?} is not the name or address of a host"
                    ));
                }
                "lo" => self.login = text,
                "dx" => self.program = text,
                "ep" => self.path = text,
                "wd" => self.directory = text,
                "bx" => self.debugger = text,
                "ip" => self.address = text,
                "id" => self.vmid = text,
                "sp" => {
                    let speed = value.parse().ok().filter(|s| (1..=SPEED_MAX).contains(s));
                    let why = || format!("sp={value}: a speed is a number from 1 to {SPEED_MAX}");
                    self.speed = Some(speed.ok_or_else(why)?);
                }
                "so" => {
                    return Err(format!(
                        "so={value}: daemons are started by ssh alone, without a question; \
                         give this login a key, or set PVM_RSH"
                    ));
                }
                _ => {
                    return Err(format!(
                        "{key}=: no such option (lo=, dx=, ep=, wd=, bx=, ip=, id=, sp=)"
                    ));
                }
            }
        }
        Ok(())
    }
}

impl HostFile {
    /// Reads a host file.
    ///
    /// # Errors
    ///
    /// The first syntax error.
    pub fn parse(text: &str) -> Result<HostFile, Fault> {
        let mut file = HostFile::default();
        for (line, text) in (1..).zip(text.lines()) {
            if let Some(host) = file.line(text).map_err(|what| Fault { line, what })? {
                file.hosts.push(host);
            }
        }
        Ok(file)
    }

    /// Reads a line. Returns the host that it names, if it names one.
    fn line(&mut self, line: &str) -> Result<Option<Host>, String> {
        let mut words = line.split_whitespace();
        let Some(first) = words.next().filter(|word| !word.starts_with('#')) else {
            return Ok(None);
        };
        if first == "*" {
            self.defaults.read(words)?;
            return Ok(None);
        }
        // The mark may stand alone or directly before the name.
        let (starts, name) = match first.strip_prefix('&') {
            None => (true, first),
            Some("") => (false, words.next().ok_or("& without a host")?),
            Some(name) => (false, name),
        };
        // `$` allows several daemons on one machine in stock PVM; it has no effect here.
        let name = name.strip_prefix('$').unwrap_or(name);
        if !is_name(name) {
            return Err(format!("{name:?} is not the name of a host"));
        }
        let mut options = self.defaults.clone();
        options.read(words)?;
        Ok(Some(Host { name: name.to_string(), options, starts }))
    }

    /// Returns the host that a line of pvm_addhosts names. Options in the line override those of
    /// this file.
    pub fn wanted(&self, line: &str) -> Result<Host, String> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default().trim_start_matches(['&', '$']);
        let known = self.hosts.iter().find(|host| host.name == name);
        let defaults = known.map_or(&self.defaults, |host| &host.options).clone();
        let host = HostFile { hosts: Vec::new(), defaults }.line(line)?;
        host.ok_or_else(|| format!("{line:?} names no host"))
    }

    /// Returns the options of the host with this name, with or without its domain.
    pub fn own(&self, name: &str) -> &HostOptions {
        let short = |name: &str| name.split('.').next().unwrap_or_default().to_string();
        let is = |host: &&Host| host.name == name || short(&host.name) == short(name);
        self.hosts.iter().find(is).map_or(&self.defaults, |host| &host.options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fault(text: &str) -> String {
        HostFile::parse(text).expect_err("a fault").to_string()
    }

    #[test]
    fn the_manuals_example_is_read_as_the_manual_says() {
        let file = HostFile::parse(
            "# host file for testing\nfonebone\n\n  # installed here\n\
             sigi.cs dx=/usr/local/pvm3/lib/pvmd sp=2000\n* lo=guest\nsn666.jrandom.com\n\
             & igor.firewall.com lo=guest2 ep=bob/pvm3/bin/$PVM_ARCH\n&cubie\n",
        )
        .expect("a host file");
        let names: Vec<_> = file.hosts.iter().map(|h| (&h.name[..], h.starts)).collect();
        assert_eq!(
            names,
            [
                ("fonebone", true),
                ("sigi.cs", true),
                ("sn666.jrandom.com", true),
                ("igor.firewall.com", false),
                ("cubie", false)
            ]
        );
        let logins: Vec<_> = file.hosts.iter().map(|h| h.options.login.as_deref()).collect();
        assert_eq!(logins, [None, None, Some("guest"), Some("guest2"), Some("guest")]);
        assert_eq!(file.hosts[1].options.speed, Some(2000));
        // Hosts added later: one of the file, and a new one.
        let igor = file.wanted("igor.firewall.com wd=/tmp").expect("a host").options;
        assert_eq!(igor.path.as_deref(), Some("bob/pvm3/bin/$PVM_ARCH"));
        assert_eq!(
            (igor.login.as_deref(), igor.directory.as_deref()),
            (Some("guest2"), Some("/tmp"))
        );
        assert_eq!(file.wanted("new").expect("a host").options.login.as_deref(), Some("guest"));
        assert_eq!(file.own("sigi").speed, Some(2000));
    }

    #[test]
    fn a_bad_line_is_named_with_what_is_wrong_with_it() {
        assert!(fault("a\nb\nc sp=fast").starts_with("3: sp=fast: a speed is"));
        assert!(fault("a sp=0").contains("from 1 to 1000000"));
        assert!(fault("a nonsense").contains("not an option"));
        assert!(fault("a xx=1").contains("xx=: no such option"));
        assert!(fault("a so=pw").contains("key"));
        assert!(fault("ep=/bin").contains("not the name of a host"));
        assert!(fault("a\nb ip=-oProxyCommand=x").starts_with("2: ip=-oProxyCommand=x: "));
        assert!(fault("a ip=").contains("not the name or address of a host"));
        assert!(fault("* ip=a;b").contains("not the name or address of a host"));
        assert!(fault("a lo=-v").contains("not a login"));
        assert!(fault("-oProxyCommand=x").contains("not the name of a host"));
        assert!(HostFile::default().wanted("a ip=-v").is_err());
        assert!(fault("&").contains("& without a host"));
        assert!(HostFile::default().wanted("").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_host_file_or_has_a_fault_in_one_of_its_lines(text in "\\PC*(\n\\PC*){0,5}") {
            if let Err(fault) = HostFile::parse(&text) {
                prop_assert!((1..=text.lines().count()).contains(&fault.line));
                prop_assert!(!fault.what.contains('\n'));
            }
        }

        #[test]
        fn written_data_is_read_back(
            names in proptest::collection::vec("[a-z][a-z0-9.]{0,8}", 1..6),
            speed in 1..=SPEED_MAX,
            path in "[a-z/:$]{1,12}",
        ) {
            let lines: Vec<String> =
                names.iter().map(|name| format!("{name}\tsp={speed}  ep={path}")).collect();
            let file = HostFile::parse(&lines.join("\n")).expect("a host file");
            let read: Vec<&String> = file.hosts.iter().map(|host| &host.name).collect();
            prop_assert_eq!(read, names.iter().collect::<Vec<_>>());
            for host in &file.hosts {
                prop_assert_eq!(host.options.speed, Some(speed));
                prop_assert_eq!(host.options.path.as_deref(), Some(&path[..]));
            }
        }
    }
}
