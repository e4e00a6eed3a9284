//! The scripts: the files, keys, arguments and reply of each.

use super::{
    Script,
    arguments::*,
    fields::{Pass, Read},
    replies::*,
};

/// A script with its fields.
pub(in crate::store) trait Call {
    /// Its keys.
    type Keys: Pass + Send;
    /// Its arguments.
    type Arguments: Pass + Send;
    /// Its reply.
    type Reply: Read + Send;

    /// The script.
    fn script() -> &'static Script;
}

macro_rules! calls {
    ($($(#[$doc:meta])* $call:ident($keys:ty, $arguments:ty) -> $reply:ty = $name:literal [$($file:literal),+];)+) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub(in crate::store) enum $call {}

            impl Call for $call {
                type Keys = $keys;
                type Arguments = $arguments;
                type Reply = $reply;

                fn script() -> &'static Script {
                    static SCRIPT: std::sync::LazyLock<Script> = std::sync::LazyLock::new(|| {
                        Script::new::<$call>($name, &[$(include_str!(concat!("../../../lua/", $file))),+])
                    });
                    &SCRIPT
                }
            }
        )+

        /// All scripts.
        pub(in crate::store) fn all() -> Vec<&'static Script> {
            vec![$($call::script()),+]
        }
    };
}

calls! {
    /// `lua/take.lua`, called for nearly every request.
    Take(TakeKeys, TakeArguments) -> TakeReply = "take" [
        "lib/clock.lua", "lib/shares.lua", "lib/load.lua", "lib/learn.lua", "lib/bucket.lua", "lib/memory.lua",
        "lib/recover.lua", "lib/away.lua", "lib/errors.lua", "lib/cooldown.lua", "lib/policy.lua", "take.lua"
    ];
    /// `lua/report.lua`.
    Report(CooldownKey, ReportArguments) -> ReportReply = "report" [
        "lib/clock.lua", "lib/news.lua", "lib/shares.lua", "lib/load.lua", "lib/errors.lua", "lib/cooldown.lua",
        "lib/policy.lua", "lib/publish.lua", "report.lua"
    ];
    /// `lua/override.lua`.
    Set(CooldownKey, SetArguments) -> SetReply = "set" [
        "lib/clock.lua", "lib/news.lua", "lib/shares.lua", "lib/load.lua", "lib/errors.lua", "lib/cooldown.lua",
        "lib/policy.lua", "lib/publish.lua", "override.lua"
    ];
    /// `lua/rate.lua`.
    Rate(RateKeys, RateArguments) -> RateReply = "rate" [
        "lib/clock.lua", "lib/news.lua", "lib/shares.lua", "lib/load.lua", "lib/learn.lua", "lib/bucket.lua",
        "lib/errors.lua", "lib/cooldown.lua", "lib/policy.lua", "rate.lua"
    ];
    /// `lua/memory.lua`.
    Memory(MemoryKeys, MemoryArguments) -> MemoryReply = "memory" [
        "lib/clock.lua", "lib/news.lua", "lib/memory.lua", "memory.lua"
    ];
    /// `lua/slots.lua`.
    Slots(SlotsKeys, SlotsArguments) -> SlotsReply = "slots" [
        "lib/clock.lua", "lib/news.lua", "lib/memory.lua", "lib/slots.lua", "slots.lua"
    ];
    /// `lua/peek.lua`.
    Peek(CooldownKey, ()) -> PeekReply = "peek" [
        "lib/clock.lua", "lib/shares.lua", "lib/load.lua", "lib/errors.lua", "lib/cooldown.lua", "peek.lua"
    ];
    /// `lua/when.lua`.
    When(WhenKeys, WhenArguments) -> Vec<WhenReply> = "when" [
        "lib/clock.lua", "lib/shares.lua", "lib/load.lua", "lib/learn.lua", "lib/bucket.lua", "lib/memory.lua",
        "lib/errors.lua", "lib/cooldown.lua", "lib/policy.lua", "lib/slots.lua", "when.lua"
    ];
    /// `lua/members.lua`.
    Members(MembersKeys, MembersArguments) -> MembersReply = "members" ["lib/clock.lua", "members.lua"];
    /// `lua/survey.lua`.
    Survey(SurveyKeys, ()) -> Vec<SurveyReply> = "survey" [
        "lib/clock.lua", "lib/shares.lua", "lib/load.lua", "lib/learn.lua", "lib/errors.lua", "lib/cooldown.lua",
        "survey.lua"
    ];
    /// `lua/announce.lua`.
    Announce(RosterKeys, AnnounceArguments) -> () = "announce" ["lib/clock.lua", "announce.lua"];
    /// `lua/roster.lua`.
    Roster(RosterKeys, RosterArguments) -> Tolerant<RosterReply> = "roster" ["lib/clock.lua", "roster.lua"];
}

#[cfg(test)]
mod tests {
    use super::{super::constants::constants, *};

    #[test]
    fn every_script_uses_all_its_fields_and_no_others_and_some_script_each_constant() {
        let scripts = all();
        assert!(scripts.len() > 10);
        for script in &scripts {
            let unused: Vec<_> =
                script.layout.names().filter(|name| !script.used.contains(name)).collect();
            assert_eq!(unused, Vec::<String>::new(), "{}", script.name);
        }
        for (name, _) in constants() {
            let name = format!("CONST.{name}");
            assert!(scripts.iter().any(|script| script.used.contains(&name)), "{name}");
        }
    }
}
