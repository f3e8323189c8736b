//! `nagaya oshcc`: compiles and links OpenSHMEM programs. Under the names `oshcc` and `oshc++` it
//! takes the compiler's arguments only.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nagaya_server::Failure;

const EXAMPLES: &str = "\
Examples:
  nagaya oshcc -O2 -o app app.c          compile and link a C program
  nagaya oshcc --c++ -o app app.cc       the same for C++
  nagaya oshcc --show                    print the compiler's command line
  oshcc -O2 -o app app.c                 by the name in lib/nagaya/shmem/bin";

/// Compile and link an OpenSHMEM program
///
/// Runs the C compiler with the directory of shmem.h and, if it links, with the library. See
/// nagaya-oshcc(1).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Run the C++ compiler, as oshc++ does
    #[arg(long = "c++")]
    cplusplus: bool,
    /// Print the compiler's command line, and do not run it
    #[arg(long)]
    show: bool,
    /// Arguments for the compiler
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The command lines that the wrappers of other OpenSHMEM libraries print on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Show {
    All,
    Compile,
    Link,
}

/// The installed files of OpenSHMEM.
#[derive(Debug, PartialEq, Eq)]
struct Files {
    include: PathBuf,
    library: PathBuf,
}

/// Replaces this process by the compiler. Returns only if it prints, or if that fails.
pub fn oshcc(options: &Options) -> Result<i32, Failure> {
    let (variable, default) = match options.cplusplus {
        true => ("NAGAYA_CXX", "c++"),
        false => ("NAGAYA_CC", "cc"),
    };
    let compiler = std::env::var_os(variable).filter(|name| !name.is_empty());
    // Several words, such as `ccache gcc`.
    let compiler = compiler.unwrap_or(default.into());
    let mut words = compiler.as_bytes().split(u8::is_ascii_whitespace).filter(|it| !it.is_empty());
    let program = words.next().map(OsStr::from_bytes).unwrap_or(OsStr::new(default)).to_owned();
    let mut arguments: Vec<OsString> = words.map(|it| OsStr::from_bytes(it).to_owned()).collect();
    let files = Files::find()?;
    let (show, given) = shown(options.show, &options.arguments);
    arguments.extend(command_line(&files, show, &given));
    if show.is_some() {
        let words = [program].into_iter().chain(arguments);
        let words: Vec<_> = words.map(|it| it.to_string_lossy().into_owned()).collect();
        // The parts alone have no compiler: they are for other compilers' command lines.
        let skipped = usize::from(show != Some(Show::All));
        println!("{}", words[skipped..].join(" "));
        return Ok(0);
    }
    let error = Command::new(&program).args(&arguments).exec();
    let status = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
    let program = program.display();
    let message = format!(
        "cannot start the compiler {program}: {error}. Install a compiler, or name another one in \
         {variable}"
    );
    Err(Failure { message, status })
}

impl Files {
    /// Finds the files in the installation or build tree of the running `nagaya`.
    fn find() -> Result<Self, Failure> {
        let program =
            std::env::current_exe().map_err(|error| Failure::ours(format!("own path: {error}")))?;
        let bin = program.parent().unwrap_or(Path::new("/"));
        Self::beside(bin).ok_or_else(|| {
            Failure::ours(
                "libnagaya-shmem.so and shmem.h are neither in ../lib/nagaya/shmem nor in shmem \
                 beside nagaya. Install Nagaya's headers (libnagaya-dev or nagaya-devel)",
            )
        })
    }

    /// Returns the files for the `nagaya` in `bin`. In a build tree the library's build script
    /// makes `shmem`.
    fn beside(bin: &Path) -> Option<Self> {
        let roots = [bin.join("../lib/nagaya/shmem"), bin.join("shmem")];
        let root = roots.into_iter().find(|root| {
            root.join("lib/libnagaya-shmem.so").is_file() && root.join("include/shmem.h").is_file()
        })?;
        let root = root.canonicalize().ok()?;
        Some(Self { include: root.join("include"), library: root.join("lib") })
    }
}

/// Separates the wrapper's own arguments from those of the compiler.
fn shown(show: bool, arguments: &[OsString]) -> (Option<Show>, Vec<OsString>) {
    let mut wanted = show.then_some(Show::All);
    let mut rest = Vec::new();
    for argument in arguments {
        match argument.to_str() {
            Some("--show" | "-show" | "--showme" | "-showme") => wanted = Some(Show::All),
            Some("--showme:compile" | "-compile-info") => wanted = Some(Show::Compile),
            Some("--showme:link" | "-link-info") => wanted = Some(Show::Link),
            _ => rest.push(argument.clone()),
        }
    }
    (wanted, rest)
}

/// Returns the arguments of the compiler.
fn command_line(files: &Files, show: Option<Show>, given: &[OsString]) -> Vec<OsString> {
    let joined = |prefix: &str, path: &Path| {
        let mut word = OsString::from(prefix);
        word.push(path);
        word
    };
    let compile = joined("-I", &files.include);
    let rpath = joined("-Wl,-rpath,", &files.library);
    let link = [joined("-L", &files.library), rpath, "-lnagaya-shmem".into()];
    match show {
        Some(Show::Compile) => return vec![compile],
        Some(Show::Link) => return link.into(),
        Some(Show::All) | None => {}
    }
    let mut words = vec![compile];
    words.extend(given.iter().cloned());
    // `--show` without arguments shows the command line of a program.
    if links(given) || (show.is_some() && given.is_empty()) {
        words.extend(link);
    }
    words
}

/// Returns true if the compiler links with these arguments: it has an input, and no option ends
/// its work earlier.
fn links(arguments: &[OsString]) -> bool {
    let ends_earlier = |word: &OsString| {
        let names = ["-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", "-r"];
        names.iter().any(|name| word == name)
    };
    // The word after these options is no input.
    let takes_word = |word: &OsString| {
        let names =
            ["-o", "-x", "-I", "-L", "-D", "-U", "-MF", "-MT", "-MQ", "-include", "-isystem"];
        names.iter().any(|name| word == name)
    };
    let mut has_input = false;
    let mut is_value = false;
    for word in arguments {
        let is_option = word.as_bytes().starts_with(b"-") && word != "-";
        has_input |= !is_value && !is_option;
        is_value = !is_value && takes_word(word);
    }
    has_input && !arguments.iter().any(ends_earlier)
}
