//! The requests and commands of one run, drawn from a seed.

use fastrand::Rng;

/// A step of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A request to one of the servers. `{tid:N}` in its path is replaced by the tid of an earlier answer.
    Request { server: usize, method: &'static str, path: String, kind: &'static str, body: Vec<u8> },
    /// Moves the clock ahead by this many microseconds.
    Advance(i64),
    /// A command on the store. If the store is a file, no server has it open meanwhile.
    Command(Vec<String>),
    /// An import of this dump by a command.
    Import { options: Vec<String>, dump: String },
}

/// The domain of all requests.
const DOMAIN: &str = "enwiki";

const TITLES: &[&str] = &["Main_Page", "A/B", "M%C3%BCnchen", "Talk:X", "E%26F"];
const FORM: &str = "application/x-www-form-urlencoded";
const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;

/// The kinds of steps that a script may have under a configuration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Traits {
    /// The number of servers on the store.
    pub(super) servers: usize,
    /// Whether revisions are sealed, compacted and erased.
    pub(super) archive: bool,
    /// Whether a policy of retention is configured.
    pub(super) retention: bool,
}

/// Draws a script of about `steps` steps, followed by steps that read everything.
pub(super) fn draw(seed: u64, steps: usize, traits: Traits) -> Vec<Step> {
    let mut script =
        Script { rng: Rng::with_seed(seed), traits, highest: [0; TITLES.len()], posts: 0, steps: Vec::new() };
    while script.steps.len() < steps {
        script.step();
    }
    script.read_everything();
    script.steps
}

struct Script {
    rng: Rng,
    traits: Traits,
    /// The highest revision of each title.
    highest: [u64; TITLES.len()],
    /// The number of POSTs of revisions and renders so far, without repeated ones. Not all are answered with a tid.
    posts: usize,
    steps: Vec<Step>,
}

impl Script {
    fn step(&mut self) {
        let pause = match self.rng.u32(..20) {
            0 => self.rng.i64(MINUTE..90 * MINUTE),
            1..=4 => self.rng.i64(SECOND..5 * MINUTE),
            _ => self.rng.i64(1_000..2 * SECOND),
        };
        self.steps.push(Step::Advance(pause));
        match self.rng.u32(..100) {
            0..=29 => self.post_revision(),
            30..=37 => self.post_render(),
            38..=43 => self.replace(),
            44..=90 => self.read(),
            91..=93 => self.bad_request(),
            94 => self.upload(),
            _ => self.command(),
        }
    }

    fn title(&mut self) -> usize {
        // The first title gets a long history.
        if self.rng.bool() { 0 } else { self.rng.usize(..TITLES.len()) }
    }

    fn request(&mut self, method: &'static str, path: String, kind: &'static str, body: Vec<u8>) {
        let server = self.rng.usize(..self.traits.servers);
        self.steps.push(Step::Request { server, method, path, kind, body });
    }

    fn get(&mut self, path: String) {
        let method = if self.rng.u32(..12) == 0 { "HEAD" } else { "GET" };
        self.request(method, path, "", Vec::new());
    }

    fn page(title: usize) -> String {
        format!("/v1/{DOMAIN}/page/{}", TITLES[title])
    }

    /// Draws a text of some paragraphs. Revisions of one page have many paragraphs in common.
    fn text(&mut self) -> String {
        let paragraphs = self.rng.usize(1..12);
        let mut text = String::new();
        for _ in 0..paragraphs {
            let mut words = Rng::with_seed(self.rng.u64(..40));
            for _ in 0..words.u32(5..60) {
                let length = words.usize(2..9);
                text.extend(std::iter::repeat_with(|| words.lowercase()).take(length));
                text.push('+');
            }
        }
        text
    }

    fn properties(&mut self) -> String {
        let mut form = format!("html=%3Cp%3E{}", self.text());
        if self.rng.bool() {
            form.push_str(&format!("&wikitext={}", self.text()));
        }
        if self.rng.u32(..4) == 0 {
            form.push_str(&format!("&data-parsoid=%7B%22a%22:{}%7D", self.rng.u32(..)));
        }
        if self.rng.u32(..60) == 0 {
            // This body has more than one chunk.
            form.push_str("&meta=");
            form.extend((0..1_200_000).map(|_| self.rng.alphanumeric()));
        }
        form
    }

    fn post_revision(&mut self) {
        let title = self.title();
        let highest = self.highest[title];
        let rev = match self.rng.u32(..10) {
            // The number of an older revision, which may exist already, or a number above a gap.
            0 => self.rng.u64(1..=highest.max(1)),
            1 => highest + self.rng.u64(2..5),
            _ => highest + 1,
        };
        let mut form = format!("_rev={rev}&{}", self.properties());
        for (field, often) in
            [("&_comment=c+%C3%BC", 3), ("&_user=Ann", 2), ("&_minor=1", 5), ("&_parent=1", 9), ("&x=1", 20)]
        {
            if self.rng.u32(..often) == 0 && !(field == "&_parent=1" && rev == 1) {
                form.push_str(field);
            }
        }
        if self.rng.u32(..8) == 0 {
            let (day, minute) = (self.rng.u32(1..28), self.rng.u32(..60));
            form.push_str(&format!("&_timestamp=2020-02-{day:02}T10:{minute:02}:00Z"));
        }
        if self.rng.u32(..8) == 0 {
            let latest = if self.rng.u32(..4) == 0 { highest + 1 } else { highest };
            form.push_str(&format!("&_if_latest={latest}"));
        }
        self.write("POST", format!("{}?rev/", Self::page(title)), form);
        self.highest[title] = highest.max(rev);
        if self.rng.u32(..12) == 0 {
            // A client that received no answer repeats its request.
            let again = self.steps.last().cloned();
            self.steps.extend(again);
        }
    }

    fn write(&mut self, method: &'static str, path: String, form: String) {
        self.request(method, path, FORM, form.into_bytes());
        self.posts += 1;
    }

    fn post_render(&mut self) {
        let title = self.title();
        let rev = self.rng.u64(1..=self.highest[title].max(1));
        let mut form = format!("html=%3Cb%3E{}", self.text());
        if self.rng.u32(..6) == 0 {
            form.push_str("&_timestamp=2021-05-05T05:05:05Z");
        }
        let base = if self.rng.bool() { rev.to_string() } else { self.tid() };
        self.write("POST", format!("{}?rev/{base}/", Self::page(title)), form);
    }

    fn replace(&mut self) {
        let title = self.title();
        let (tid, text) = (self.tid(), self.text());
        let property = if self.rng.u32(..4) == 0 { "wikitext" } else { "html" };
        self.request(
            "PUT",
            format!("{}?rev/{tid}/{property}", Self::page(title)),
            "text/html",
            text.into_bytes(),
        );
    }

    fn tid(&mut self) -> String {
        // Recent tids are more frequent than old ones.
        let back = if self.rng.bool() { self.rng.usize(..6) } else { self.rng.usize(..self.posts.max(1)) };
        format!("{{tid:{}}}", self.posts.saturating_sub(back + 1))
    }

    fn read(&mut self) {
        let title = self.title();
        let page = Self::page(title);
        let rev = self.rng.u64(1..=self.highest[title].max(1));
        let property = ["html", "html", "wikitext", "data-parsoid", "meta"][self.rng.usize(..5)];
        let path = match self.rng.u32(..16) {
            0 | 1 => format!("{page}?rev/latest/{property}"),
            2 => format!("{page}?rev/latest/"),
            3 => format!("{page}?rev/"),
            4 => format!("{page}?rev/&limit={}", self.rng.u32(1..9)),
            5 | 6 => format!("{page}?rev/{rev}/{property}"),
            7 => format!("{page}?rev/{rev}/"),
            8 | 9 => format!("{page}?rev/{}/{property}", self.tid()),
            10 => format!("{page}?rev/{}/", self.tid()),
            11 => format!("{page}?rev/2020-02-{:02}T10:30:00Z/{property}", self.rng.u32(1..28)),
            12 => format!("{page}?timemap/{property}"),
            13 => format!("{page}?timegate/{property}"),
            14 => format!("/pages/{DOMAIN}/{}", TITLES[title]),
            _ => format!("/v1/{DOMAIN}/page/"),
        };
        self.get(path);
    }

    fn bad_request(&mut self) {
        let page = Self::page(self.rng.usize(..TITLES.len()));
        let path = match self.rng.u32(..6) {
            0 => format!("{page}?rev/0/html"),
            1 => format!("{page}?rev/latest/HTML"),
            2 => format!("{page}?rev/&limit=0"),
            3 => format!("{page}?rev/99999/html"),
            4 => "/v1/nowiki/page/X?rev/latest/html".to_owned(),
            _ => format!("{page}?rev/{}x/", self.tid()),
        };
        self.get(path);
    }

    fn dump(&mut self) -> String {
        let mut lines = vec![r#"{"kind":"siteinfo","version":1}"#.to_owned()];
        for page in 0..self.rng.u32(1..4) {
            lines.push(format!(r#"{{"kind":"page","title":"Imported {}"}}"#, page * self.rng.u32(1..5)));
            for rev in 1..=self.rng.u32(1..30) {
                let day = rev.min(28);
                lines.push(format!(
                    r#"{{"kind":"revision","rev":{rev},"timestamp":"2019-01-{day:02}T00:00:00Z","user":"Ben"}}"#
                ));
                let text = self.text();
                lines.push(format!(r#"{{"kind":"render","properties":{{"wikitext":{{"text":"{text}"}}}}}}"#));
            }
        }
        lines.join("\n") + "\n"
    }

    fn upload(&mut self) {
        let dump = self.dump();
        self.request("POST", format!("/v1/{DOMAIN}/import"), "application/x-ndjson", dump.into_bytes());
    }

    fn command(&mut self) {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut options = vec!["stats --json", "verify", "import", "export", "export"];
        if self.traits.retention {
            options.extend(["retention --now", "retention --now", "retention --dry-run"]);
        }
        if self.traits.archive {
            options.extend([
                "archive seal",
                "archive seal",
                "archive seal",
                "archive merge",
                "archive erase",
            ]);
            options.extend(["archive verify", "archive stats", "import --archive"]);
        }
        let command = options[self.rng.usize(..options.len())];
        let step = match command {
            "import" | "import --archive" => {
                let mut options = words(command);
                options.splice(1..1, words(&format!("--domain {DOMAIN} --jobs 1")));
                Step::Import { options, dump: self.dump() }
            }
            "export" => {
                let format = if self.rng.bool() { "xml" } else { "jsonl" };
                Step::Command(words(&format!("export --domain {DOMAIN} --history --format {format}")))
            }
            "archive erase" => {
                let rev = self.rng.u64(1..=self.highest[0].max(1));
                let erase = format!("archive erase --domain {DOMAIN} --title Main_Page --rev {rev} --by Ann");
                Step::Command(words(&erase))
            }
            _ => Step::Command(words(command)),
        };
        self.steps.push(step);
    }

    /// Reads each revision of all pages with its html and wikitext. Requests the html of all tids on the first page.
    fn read_everything(&mut self) {
        for title in 0..TITLES.len() {
            let page = Self::page(title);
            for rest in ["?rev/", "?rev/latest/", "?rev/latest/html", "?rev/latest/wikitext", "?timemap/html"]
            {
                self.request("GET", format!("{page}{rest}"), "", Vec::new());
            }
            for rev in 1..=self.highest[title] {
                for rest in ["", "html", "wikitext"] {
                    self.request("GET", format!("{page}?rev/{rev}/{rest}"), "", Vec::new());
                }
            }
        }
        for tid in 0..self.posts {
            self.request("GET", format!("{}?rev/{{tid:{tid}}}/html", Self::page(0)), "", Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Traits = Traits { servers: 2, archive: true, retention: true };

    #[test]
    fn the_same_seed_draws_the_same_script() {
        assert_eq!(draw(7, 200, ALL), draw(7, 200, ALL));
        assert_ne!(draw(7, 200, ALL), draw(8, 200, ALL));
    }

    #[test]
    fn script_writes_reads_imports_and_runs_commands() {
        let script = draw(1, 4_000, ALL);
        let has = |wanted: &dyn Fn(&Step) -> bool| script.iter().any(wanted);
        for method in ["GET", "HEAD", "POST", "PUT"] {
            assert!(
                has(&|step| matches!(step, Step::Request { method: its, .. } if *its == method)),
                "{method}"
            );
        }
        for command in
            ["verify", "retention --now", "archive seal", "archive merge", "archive erase", "export"]
        {
            assert!(
                has(&|step| matches!(step, Step::Command(words) if words.join(" ").starts_with(command))),
                "{command}"
            );
        }
        assert!(has(
            &|step| matches!(step, Step::Import { options, .. } if options.iter().any(|o| o == "--archive"))
        ));
        assert!(has(&|step| matches!(step, Step::Request { server: 1, .. })));
    }
}
