//! The pages of the origin.

/// A page of the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Page {
    /// 1 KB of HTML.
    Small,
    /// 64 KB of HTML that begins like pages of shops and newspapers: scripts, styles and menus. It
    /// has hardly any text in the scanned part, so that all of that part must be read.
    Large,
    /// The same number of bytes without text.
    Image,
    /// 1 MB of HTML that begins like `Large`. Most of it is not scanned.
    Huge,
}

impl Page {
    /// All pages.
    pub(crate) const ALL: [Self; 4] = [Self::Small, Self::Large, Self::Image, Self::Huge];

    /// Its path.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Small => "/",
            Self::Large => "/large",
            Self::Image => "/image",
            Self::Huge => "/huge",
        }
    }

    /// Its length.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Small => 1024,
            Self::Large | Self::Image => 64 * 1024,
            Self::Huge => 1024 * 1024,
        }
    }

    /// Its `Content-Type`.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Small | Self::Large | Self::Huge => "text/html; charset=utf-8",
            Self::Image => "image/png",
        }
    }

    /// Its bytes.
    pub(crate) fn body(self) -> Vec<u8> {
        let mut body = match self {
            Self::Small => {
                "<!doctype html><html><head><title>bench</title></head><body>\n".to_owned()
            }
            Self::Large | Self::Huge => head_and_menus(),
            Self::Image => String::new(),
        };
        let (line, end) = match self {
            Self::Small | Self::Large | Self::Huge => {
                ("<p class=\"line\">a few words that mean nothing at all</p>\n", "</body></html>\n")
            }
            Self::Image => ("\u{1}\u{2}\u{3}\u{4}", ""),
        };
        while body.len() + end.len() < self.bytes() {
            body.push_str(line);
        }
        body.truncate(self.bytes() - end.len());
        body.push_str(end);
        body.into_bytes()
    }
}

/// The first 20 KB of a page: three fifths scripts and styles, the rest tags with a word between
/// them.
fn head_and_menus() -> String {
    let mut page = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\n\
                    <title>A shop with many things</title>\n"
        .to_owned();
    for number in 0..20 {
        page.push_str(&format!(
            "<meta property=\"og:key{number}\" content=\"a value of some length for others\">\n\
             <link rel=\"stylesheet\" href=\"/assets/css/part-{number}.css?v=20260101\">\n"
        ));
    }
    for number in 0..40 {
        page.push_str(&format!(
            "<script>window.part{number} = window.part{number} || []; for (var i = 0; i < 9; i++) \
             {{ part{number}.push({{id: i, name: \"module-{number}\", load: function (e) {{ return e \
             && e.target ? e.target.value : null; }}}}); }}</script>\n"
        ));
    }
    page.push_str("</head><body class=\"home wide\"><nav><ul class=\"menu\">\n");
    for number in 0..60 {
        page.push_str(&format!(
            "<li class=\"menu-item level-{}\"><a href=\"/shelf/{number}?from=menu\" \
             class=\"link\" data-id=\"{number}\">Shelf {number}</a></li>\n",
            number % 3
        ));
    }
    page.push_str("</ul></nav><main>\n");
    page
}
