//! Runs a script against our buffers, with the output of `oracle.c`.
//!
//! A line is a call and its arguments: numbers, `@N` and `>N` for places in the arrays from
//! which and into which items go. The result is the call, its return code and what it set;
//! memory is told by its FNV-1a hash.

use std::ffi::CString;

use pvm::buffers::{Buffers, FRAGMENT_SIZE, Info};
use pvm::constants::PvmDataRaw;
use pvm::error::Error;
use pvm::format::Arguments;
use pvm::fragment::Fragment;
use pvm::items::{Kind, Source, Target};
use pvm::message::{Header, Message};

const ARENA: usize = 1 << 20;

/// One run.
pub struct Ours {
    buffers: Buffers,
    arena: Vec<u8>,
    out: Vec<u8>,
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn code<T: Into<i32>>(result: Result<T, Error>) -> i32 {
    result.map_or_else(Error::code, Into::into)
}

fn done(result: Result<(), Error>) -> i32 {
    code(result.map(|()| 0))
}

fn kind(name: &str) -> Kind {
    match name {
        "b" => Kind::Byte,
        "s" => Kind::Short,
        "i" => Kind::Int,
        "l" => Kind::Long,
        "us" => Kind::UShort,
        "ui" => Kind::UInt,
        "ul" => Kind::ULong,
        "f" => Kind::Float,
        "d" => Kind::Double,
        "c" => Kind::Complex,
        "z" => Kind::DoubleComplex,
        other => panic!("kind {other}"),
    }
}

fn header(info: &Info, own: i32) -> String {
    let tid = |tid| if tid == own { -1 } else { tid };
    let h = info.header;
    format!(
        "{}:{}:{}:{}:{:x}:{}:{}:{}",
        info.length,
        h.context,
        h.tag,
        h.wait_id,
        info.encoding,
        h.crc,
        tid(h.source),
        tid(h.destination)
    )
}

struct Words<'a> {
    integers: std::slice::Iter<'a, i64>,
    doubles: std::slice::Iter<'static, f64>,
}

impl Arguments for Words<'_> {
    fn int(&mut self) -> i32 {
        self.long() as i32
    }
    fn long(&mut self) -> i64 {
        *self.integers.next().expect("enough words")
    }
    fn double(&mut self) -> f64 {
        *self.doubles.next().expect("enough doubles")
    }
    fn pointer(&mut self) -> *mut u8 {
        self.long() as *mut u8
    }
}

impl Ours {
    /// `tid` is the oracle's.
    pub fn new(tid: i32) -> Ours {
        let mut buffers = Buffers::new(tid, || (0, 0));
        // What the stock library has used when it has said hello to its daemon.
        for _ in 0..3 {
            buffers.mkbuf(0).expect("a buffer");
        }
        for id in [6, 5] {
            buffers.freebuf(id).expect("a buffer of ours");
        }
        Ours { buffers, arena: vec![0; ARENA], out: vec![0; ARENA] }
    }

    /// The results, a line each.
    pub fn run(&mut self, script: &str) -> Vec<String> {
        script.lines().map(|line| self.line(line)).collect()
    }

    fn fill(&mut self, mut seed: u64) {
        for word in self.arena.chunks_exact_mut(8) {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = seed;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
            word.copy_from_slice(&z.to_le_bytes());
        }
        self.arena[ARENA - 1] = 0; // the end of a string there
    }

    fn line(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| word.parse::<i64>().unwrap_or(0);
        let middle = |array: &mut Vec<u8>, word: &str| {
            let offset = ARENA as i64 / 2 + number(&word[1..]);
            array[offset as usize..].as_mut_ptr() as i64
        };
        let mut values = Vec::new();
        for word in &words {
            values.push(match word.as_bytes()[0] {
                b'@' => middle(&mut self.arena, word),
                b'>' => middle(&mut self.out, word),
                _ => number(word),
            });
        }
        let n: Vec<i32> = values.iter().map(|&value| value as i32).collect();
        self.out.fill(0xaa);
        let buffers = &mut self.buffers;
        let own = buffers.tid;
        let result = match words[0] {
            "fill" => {
                self.fill(values[1] as u64);
                return "fill".to_owned();
            }
            "option" => {
                let old = buffers.fragment_size as i32;
                buffers.fragment_size = values[1] as usize;
                old.to_string()
            }
            "mkbuf" => code(buffers.mkbuf(n[1])).to_string(),
            "initsend" => code(buffers.initsend(n[1])).to_string(),
            "freebuf" => done(buffers.freebuf(n[1])).to_string(),
            "setsbuf" => code(buffers.setsbuf(n[1])).to_string(),
            "setrbuf" => code(buffers.setrbuf(n[1])).to_string(),
            "getsbuf" => buffers.getsbuf().to_string(),
            "getrbuf" => buffers.getrbuf().to_string(),
            "bufinfo" => match buffers.info(n[1]) {
                Ok(info) => {
                    let h = info.header;
                    format!(
                        "0 {} {} {}",
                        info.length,
                        h.tag,
                        if h.source == own { -1 } else { h.source }
                    )
                }
                Err(error) => format!("{} -99 -99 -99", error.code()),
            },
            "getminfo" => match buffers.info(n[1]) {
                Ok(info) => format!("0 {}", header(&info, own)),
                Err(error) => format!("{} 0:0:0:0:0:0:0:0", error.code()),
            },
            "setminfo" => {
                let header = Header {
                    context: n[2],
                    tag: n[3],
                    wait_id: n[4],
                    crc: 99,
                    source: n[5],
                    destination: n[6],
                };
                done(buffers.set_info(n[1], header)).to_string()
            }
            "pack" => {
                let at = values[2] as *const u8;
                // SAFETY: scripts stay inside the arrays, which live longer than the messages.
                let source = unsafe { Source::new(kind(words[1]), at, n[3], n[4]) };
                done(buffers.pack(&source)).to_string()
            }
            "unpack" => {
                let at = values[2] as *mut u8;
                // SAFETY: as above; nothing that is packed lies in `out`.
                let mut target = unsafe { Target::new(kind(words[1]), at, n[3], n[4]) };
                let code = done(buffers.unpack(&mut target));
                format!("{code} {:016x}", fnv(&self.out))
            }
            "packstr" => {
                let string = CString::new(vec![b'p'; values[1] as usize]).expect("no 0");
                done(buffers.pack_string(&string)).to_string()
            }
            "unpackstr" => {
                let at = self.out[ARENA / 2..].as_mut_ptr();
                // SAFETY: messages are shorter than what is left of the array.
                let code = done(unsafe { buffers.unpack_string(at) });
                format!("{code} {:016x}", fnv(&self.out))
            }
            "packf" | "unpackf" => {
                let mut arguments = Words {
                    integers: values[2..].iter(),
                    doubles: [1.5, -2.25, 3e300, 4.0, 0.1].iter(),
                };
                let format = words[1].as_bytes();
                // SAFETY: scripts give the arguments that their formats ask for.
                unsafe {
                    if words[0] == "packf" {
                        done(buffers.pack_format(format, &mut arguments)).to_string()
                    } else {
                        let code = done(buffers.unpack_format(format, &mut arguments));
                        format!("{code} {:016x}", fnv(&self.out))
                    }
                }
            }
            "pkmesg" => done(buffers.pack_message(n[1])).to_string(),
            "pkmesgbody" => done(buffers.pack_body(n[1])).to_string(),
            "upkmesg" => code(buffers.unpack_message()).to_string(),
            "dump" => self.dump(n[1]),
            "loop" => match self.send_to_self(n[1]) {
                Ok(message) => {
                    format!("0 {}", code(self.buffers.receive(message)))
                }
                Err(error) => error.code().to_string(),
            },
            other => panic!("call {other}"),
        };
        format!("{} {result}", words[0])
    }

    /// As the oracle does it, so that numbers are used in the same order.
    fn dump(&mut self, id: i32) -> String {
        let buffers = &mut self.buffers;
        let own = buffers.tid;
        let into = buffers.mkbuf(PvmDataRaw).expect("a buffer");
        let sending = buffers.setsbuf(into).expect("ours");
        let result = buffers.pack_message(id);
        let receiving = buffers.setrbuf(into).expect("ours");
        let mut text = done(result).to_string();
        if result.is_ok() {
            let info = buffers.info(id).expect("it is there");
            text += &format!(" {}", header(&info, own));
            for fragment in buffers.message(id).expect("it is there").fragments() {
                let bytes = fragment.bytes();
                text += &format!(" {}={:016x}", bytes.len(), fnv(bytes));
            }
        }
        buffers.freebuf(into).expect("ours");
        buffers.setsbuf(sending).expect("as before");
        buffers.setrbuf(receiving).expect("as before");
        text
    }

    /// What comes if the active send buffer is sent to its sender.
    fn send_to_self(&mut self, tag: i32) -> Result<Message, Error> {
        let tid = self.buffers.tid;
        let message = self.buffers.sending()?;
        message.address(tid, tag);
        let mut fragments = Vec::new();
        for sent in message.fragments() {
            // The stock library receives into buffers of the usual size, behind the header.
            let header = if fragments.is_empty() { 48 } else { 16 };
            let capacity = FRAGMENT_SIZE - header;
            let mut fragment = Fragment::new(capacity.max(sent.bytes().len()));
            fragment.append(sent.bytes());
            fragments.push(fragment);
        }
        let header = Header { source: tid, ..message.header };
        Ok(Message::received(header, message.encoding_sent(), fragments, FRAGMENT_SIZE))
    }
}
