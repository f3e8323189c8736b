//! The fenced blocks of a Markdown page, and the treatment that comments in front of them give.
//!
//! ```text
//! <!-- file: NAME -->        write the block to this file
//! <!-- expect: TEXT -->      the output of this block contains the text (may be repeated)
//! <!-- status: N -->         the block ends with this status instead of 0
//! <!-- given: A B -->        names of the reader's own programs: the test puts small ones there
//! <!-- on: slurm -->         run the block on a cluster of Slurm's, made on this machine
//! <!-- on: hosts -->         run commands for other hosts on this machine (NAGAYA_RSH)
//! <!-- needs: A B -->        without these the block and those after it are skipped: programs,
//!                            `info=FEATURE` of `nagaya info`, `command=SUBCOMMAND` of `nagaya`
//! <!-- output -->            the lines of this block are in the output of the block before it, in
//!                            this order; `…` stands for any text
//! <!-- not run: REASON -->   no test can run this block
//! ```
//! A `sh` block without a comment is run. Any other block needs one of `file`, `output`, `not run`.

/// A fenced block.
#[derive(Debug)]
pub struct Block {
    /// The line of its first fence, from 1.
    pub line: usize,
    /// Its content.
    pub text: String,
    /// Its treatment by a test.
    pub treatment: Treatment,
    /// Programs and features that it needs.
    pub needs: Vec<String>,
    /// The reader's own programs.
    pub given: Vec<String>,
    /// The machines that it uses.
    pub on: Machines,
}

/// The machines of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Machines {
    /// This one.
    #[default]
    This,
    /// A cluster of Slurm's.
    Slurm,
    /// Hosts that are reached as by ssh.
    Hosts,
}

/// The treatment of a block by a test.
#[derive(Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Runs it in a shell; the output contains all of these texts.
    Run {
        /// The wanted status.
        status: i32,
        /// The wanted texts.
        expect: Vec<String>,
    },
    /// Writes it to a file.
    File(String),
    /// Compares it with the output of the block before it.
    Output,
    /// Nothing, for this reason.
    NotRun(String),
}

/// The comments in front of a block.
#[derive(Debug, Default)]
struct Comments {
    expect: Vec<String>,
    status: Option<i32>,
    needs: Vec<String>,
    given: Vec<String>,
    on: Machines,
    other: Option<Treatment>,
}

impl Comments {
    /// Adds a comment; other comments have no effect.
    fn add(&mut self, line: &str) -> Result<(), String> {
        let Some(comment) = line.strip_prefix("<!--").and_then(|it| it.strip_suffix("-->")) else {
            return Ok(());
        };
        let (key, value) = comment.trim().split_once(':').unwrap_or((comment.trim(), ""));
        let value = value.trim();
        match key {
            "expect" => self.expect.push(value.to_owned()),
            "status" => self.status = Some(value.parse().map_err(|_| "a status is a number")?),
            "needs" => self.needs.extend(value.split_whitespace().map(str::to_owned)),
            "on" => {
                self.on = match value {
                    "slurm" => Machines::Slurm,
                    "hosts" => Machines::Hosts,
                    other => return Err(format!("`on: {other}` is not known")),
                }
            }
            "given" => self.given.extend(value.split_whitespace().map(str::to_owned)),
            "file" => self.other = Some(Treatment::File(value.to_owned())),
            "output" => self.other = Some(Treatment::Output),
            "not run" if value.is_empty() => return Err("`not run` needs a reason".to_owned()),
            "not run" => self.other = Some(Treatment::NotRun(value.to_owned())),
            _ => {}
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.expect.is_empty() && self.status.is_none() && self.other.is_none()
    }

    /// The treatment of a block in this language.
    fn treatment(&mut self, language: &str) -> Result<Treatment, String> {
        match (self.other.take(), language) {
            (Some(treatment), _) => Ok(treatment),
            (None, "sh") => Ok(Treatment::Run {
                status: self.status.unwrap_or(0),
                expect: std::mem::take(&mut self.expect),
            }),
            (None, other) => Err(format!(
                "a block of `{other}` needs one of these comments: file: NAME, output, \
                 not run: REASON"
            )),
        }
    }
}

/// Returns the blocks of a page.
///
/// # Errors
/// With the line of a block that has no treatment, or of a comment without a block.
pub fn blocks(text: &str) -> Result<Vec<Block>, String> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut comments = Comments::default();
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        let at = |error: String| format!("line {number}: {error}");
        let Some(language) = line.trim_start().strip_prefix("```") else {
            if !line.trim().is_empty() && !line.starts_with("<!--") && !comments.is_empty() {
                return Err(at("no block follows the comment".to_owned()));
            }
            comments.add(line.trim()).map_err(at)?;
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let mut content = String::new();
        loop {
            let (_, line) = lines.next().ok_or_else(|| at("the block has no end".to_owned()))?;
            if line.trim() == "```" {
                break;
            }
            content.push_str(line.get(indent..).unwrap_or_default());
            content.push('\n');
        }
        let mut comments = std::mem::take(&mut comments);
        let treatment = comments.treatment(language.trim()).map_err(at)?;
        let runs = |block: &Block| !matches!(block.treatment, Treatment::File(_));
        if treatment == Treatment::Output && !blocks.last().is_some_and(runs) {
            return Err(at("no command in front of the output".to_owned()));
        }
        let Comments { needs, given, on, .. } = comments;
        blocks.push(Block { line: number, text: content, treatment, needs, given, on });
    }
    if comments.is_empty() { Ok(blocks) } else { Err("the last comment has no block".to_owned()) }
}
