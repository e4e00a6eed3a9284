//! Closed sets of words: enums whose values are words in headers, labels, log lines and the API.

/// Defines an enum with the word of each value.
macro_rules! words {
    ($(#[$about:meta])* $vis:vis enum $set:ident {
        $($(#[$meaning:meta])* $value:ident = $word:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        $vis enum $set {
            $($(#[$meaning])* $value,)*
        }

        impl $set {
            /// Every value, in the order of their numbers.
            #[allow(dead_code, reason = "not every set is listed somewhere")]
            $vis const ALL: [Self; [$($word),*].len()] = [$(Self::$value),*];

            /// Its word in headers, labels, log lines and the API.
            #[must_use]
            $vis const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)*
                }
            }
        }
    };
}
