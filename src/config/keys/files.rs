//! The keys for rules in several files and for shared values.

use super::{Default::Required, Kind, RULE, Section, key};

/// `defaults`: the keys of a rule but for the first three.
pub(in crate::config) static DEFAULTS: Section = Section {
    name: "defaults",
    doc: "Values for every rule that does not set the key, also in included files: any key of a \
          rule except `name`, `match` and `action`. Mappings are not merged.",
    keys: RULE.keys.split_at(3).1,
};

/// A file that another one includes.
pub(in crate::config) static INCLUDED: Section = Section {
    name: "included",
    doc: "The top level of a file that `include` names. Keys that begin with `x-` hold anchors.",
    keys: &[key(
        "rules",
        Kind::List(&Kind::Section(&RULE)),
        Required,
        "Its rules, as in the rule file. The `defaults` of the rule file apply to them too.",
    )],
};
