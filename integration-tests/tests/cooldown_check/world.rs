//! A fleet, its store and the messages between them, as one state that can be copied, compared and
//! advanced by a step.

use std::{
    fmt::{self, Write},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use tidegate::{
    classify::verdict::Verdict,
    gate::cache::{CooldownCache, allows},
    limiter::{
        cooldown::{
            Answer, Blocks, Change, Cooldown, KnownCooldown, KnownPhase, Phase as Turn, Report,
        },
        learn,
        policy::{CooldownPolicy, Split, Weights},
    },
    runtime::clock,
    store::{Granted, Peeked, Phase, Reported, ScopeNews, What, contact::Contact},
};

/// The clock at the start, in microseconds; a step of time is one of them.
const START: i64 = 1_000_000;
/// How long a probe may be out.
const LEASE: i64 = 4;
/// Steps of time that a run may take one by one.
const TICKS: u8 = 9;
/// How long a member may send after its latest contact with the store; each step of time brings a heartbeat.
const CONTACT: i64 = 1;
/// By how much the store's clock may jump.
const JUMP: i64 = 10_000;
/// The epoch of a forged trip.
const FORGED: u64 = 1 << 50;
/// Far enough for every cooldown and every lease to end.
const LONG: i64 = 100;

/// A defect that the protocol once had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    /// Bringing back a forgotten epoch counts as an opening.
    RestoringOpens,
    /// Each trip counts the epoch up by one, also in a store that forgot.
    EpochsAreCounted,
    /// A member reports that all is open, whatever it knows.
    CoolingIsNotTold,
    /// The store does not know which member has the probe.
    ProbeOfNobody,
    /// Each queue of a member sends the probe that it is granted.
    ProbeOfEachQueue,
    /// News open a scope.
    NewsOpen,
    /// Who wakes from a long sleep sends on what it knew before.
    RightsOutliveASleep,
    /// Epochs are the time of the store, wherever its clock is.
    EpochsAreTimes,
    /// A clock that is set back leaves the times that are stored where they are.
    TimesStay,
}

/// One step.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// Time passes.
    Tick,
    /// A member requests a grant, and the store decides.
    Ask(usize),
    /// The reply arrives, or is lost.
    Reply(usize, bool),
    /// A member sends its request.
    Send(usize),
    /// The site responds with a page or a block. The member reports it, and the store decides.
    Answer(usize, bool),
    /// The reply to the report arrives, or is lost.
    Told(usize, bool),
    /// The oldest of a member's news arrives, or is lost.
    News(usize, bool),
    /// A member reads the scope, and restores what the store has lost.
    Look(usize),
    /// The oldest of a member's news arrives and comes once more.
    NewsAgain(usize),
    /// The report that a member sent last reaches the store once more.
    ReportAgain(usize),
    /// It is the turn of a member's other queue.
    Turn(usize),
    /// A member dies, and another takes its place.
    Crash(usize),
    /// A member is stopped: it does nothing, and what is sent to it waits.
    Sleep(usize),
    /// It goes on.
    Wake(usize),
    /// The store forgets everything.
    Flush,
    /// The store starts again with a snapshot from the beginning.
    Restart,
    /// Nothing happens for so long that the store forgets the scope.
    Rest,
    /// The store's clock is set forward, or back.
    Clock(bool),
    /// Forged news of a trip or an opening.
    Forge(bool),
}

/// Hashes text as it is written.
struct Digest(DefaultHasher);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// A reading of a member's clock: the step of time, and an order within the step. Questions come first, then messages
/// that arrive, then the questions that these cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Moment(i64, u8);

impl clock::Moment for Moment {
    fn after(self, micros: i64) -> Self {
        Self(self.0 + micros.max(0), 0)
    }

    fn until(self, later: Self) -> i64 {
        (later.0 - self.0).max(0)
    }
}

/// Leave to send.
#[derive(Debug, Clone, Copy, PartialEq, Hash)]
struct Leave {
    epoch: u64,
    probe: i64,
}

/// A queue of a member. It asks for one grant at a time.
#[derive(Debug, Clone, PartialEq, Default)]
struct Queue {
    /// A reply in flight, and the time of its request.
    reply: Option<(Granted, Moment)>,
    /// Leave that is not used yet.
    leave: Option<Leave>,
    /// A request without a response so far.
    sent: Option<Leave>,
    told: Option<(Reported, Moment)>,
    /// Whether the report in flight is the probe's.
    told_of_probe: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Member {
    cache: CooldownCache<Moment>,
    /// The queue whose turn it is.
    queue: Queue,
    /// Another queue with the same cooldown.
    other: Queue,
    news: Vec<ScopeNews>,
    /// The latest trip of which anything that arrived here has spoken.
    heard: u64,
    /// Its contact with the store.
    contact: Contact<Moment>,
    /// When the latest call was sent whose reply the cache is from.
    asked: Moment,
    /// Since when it has been stopped.
    sleeps: Option<i64>,
    /// From when to when it was stopped for longer than its right to send lasts.
    slept: Option<(i64, i64)>,
    /// The report that it sent last.
    report: Option<Report>,
}

/// Everything.
#[derive(Debug, Clone)]
pub(crate) struct World {
    now: i64,
    ticks: u8,
    /// How far the store's clock is ahead.
    skew: i64,
    store: Cooldown,
    /// An old snapshot of the store.
    snapshot: Cooldown,
    members: Vec<Member>,
    defect: Option<Defect>,
    /// The true trip: its epoch, its time and its end.
    trip: Option<(u64, i64, i64)>,
    /// The latest epoch that ever began.
    latest: u64,
    crashes: u8,
    sleeps: u8,
    /// What happened to the store: its memory or its clock.
    faults: u8,
    /// Whether it was its memory.
    forgot: bool,
    forged: u8,
    lost: u8,
    /// Whether messages may come twice, members may sleep, and the store may lose its time or its latest writes.
    rare: bool,
    /// Whether each member has two queues.
    two_queues: bool,
    /// The steps so far.
    pub(crate) story: Vec<Step>,
}

impl World {
    /// A fleet whose site has just begun to block.
    pub(crate) fn open(members: usize, defect: Option<Defect>) -> Self {
        let member = Member {
            cache: CooldownCache::new(true),
            queue: Queue::default(),
            other: Queue::default(),
            news: Vec::new(),
            heard: 0,
            contact: Contact::new(CONTACT, CONTACT),
            asked: Moment(START, 0),
            sleeps: None,
            slept: None,
            report: None,
        };
        Self {
            now: START,
            ticks: 0,
            skew: 0,
            store: Cooldown::default(),
            snapshot: Cooldown::default(),
            members: vec![member; members],
            defect,
            trip: None,
            latest: 0,
            crashes: 0,
            sleeps: 0,
            faults: 0,
            forgot: false,
            forged: 0,
            lost: 0,
            rare: true,
            two_queues: false,
            story: Vec::new(),
        }
    }

    /// A fleet of which the first member has just learnt of a trip, and the others know that all was open.
    pub(crate) fn tripped(members: usize, defect: Option<Defect>) -> Self {
        Self::trip_while(members, defect, |_| {})
    }

    /// The same, but the last member has been stopped since before the trip.
    pub(crate) fn asleep(members: usize, defect: Option<Defect>) -> Self {
        Self::trip_while(members, defect, |world| {
            world.sleep(members - 1);
            world.tick();
        })
    }

    fn trip_while(members: usize, defect: Option<Defect>, before: impl FnOnce(&mut Self)) -> Self {
        let mut world = Self::open(members, defect);
        for member in 0..members {
            world.ask(member);
            world.reply(member).expect("an open scope");
        }
        before(&mut world);
        world.send(0).expect("an open scope");
        world.answer(0, false).expect("a block trips");
        world.told(0);
        world
    }

    /// The same after the probe of the first member has opened the scope, before the others have
    /// the news.
    pub(crate) fn opened(members: usize, defect: Option<Defect>) -> Self {
        let mut world = Self::tripped(members, defect);
        world.snapshot = world.store.clone();
        world.tick();
        world.tick();
        world.ask(0);
        world.reply(0).expect("the probe");
        world.send(0).expect("the probe");
        world.answer(0, true).expect("a page opens the scope");
        world.told(0);
        world
    }

    /// A fleet whose cooldown has just ended. Each member has two queues, which may both ask for the probe.
    pub(crate) fn due(members: usize, defect: Option<Defect>) -> Self {
        let mut world = Self { two_queues: true, ..Self::tripped(members, defect) };
        world.tick();
        world.tick();
        world
    }

    /// The same without rare events, so that a search gets further.
    pub(crate) fn without_rare_events(self) -> Self {
        Self { rare: false, ..self }
    }

    /// The possible next steps.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.ticks < TICKS {
            steps.push(Step::Tick);
        }
        for (at, member) in self.members.iter().enumerate() {
            if member.sleeps.is_some() {
                steps.push(Step::Wake(at));
                continue;
            }
            let may_send = member.queue.leave.is_some_and(|leave| self.may_send(member, leave));
            if member.queue.reply.is_some() {
                steps.push(Step::Reply(at, true));
                if self.lost < 2 {
                    steps.push(Step::Reply(at, false));
                }
            } else if !may_send && member.queue.sent.is_none() && member.queue.told.is_none() {
                steps.push(Step::Ask(at));
            }
            if may_send {
                steps.push(Step::Send(at));
            }
            if member.queue.sent.is_some() && member.queue.told.is_none() {
                steps.extend([Step::Answer(at, true), Step::Answer(at, false)]);
            }
            if member.queue.told.is_some() {
                steps.push(Step::Told(at, true));
                if self.lost < 2 {
                    steps.push(Step::Told(at, false));
                }
            }
            if !member.news.is_empty() {
                steps.push(Step::News(at, true));
                if self.lost < 2 {
                    steps.push(Step::News(at, false));
                }
            }
            if self.faults + self.lost + self.forged + self.sleeps > 0 {
                steps.push(Step::Look(at));
            }
            if self.crashes == 0 {
                steps.push(Step::Crash(at));
            }
            if self.two_queues {
                steps.push(Step::Turn(at));
            }
            if self.rare {
                steps.extend(self.rare_steps_of(at, member));
            }
        }
        if self.faults == 0 {
            steps.push(Step::Flush);
            if self.rare {
                steps.extend([Step::Restart, Step::Clock(true), Step::Clock(false)]);
                // In so long a time, all messages arrive.
                if self.members.iter().all(Member::is_quiet) {
                    steps.push(Step::Rest);
                }
            }
        }
        if self.forged == 0 {
            steps.extend([Step::Forge(true), Step::Forge(false)]);
        }
        steps
    }

    fn rare_steps_of(&self, at: usize, member: &Member) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.lost < 2 {
            steps.extend((!member.news.is_empty()).then_some(Step::NewsAgain(at)));
            steps.extend(member.report.is_some().then_some(Step::ReportAgain(at)));
        }
        steps.extend((self.sleeps == 0).then_some(Step::Sleep(at)));
        steps
    }

    /// Takes one step, and checks every promise.
    pub(crate) fn take(&mut self, step: Step) -> Result<(), String> {
        self.story.push(step);
        let epochs: Vec<u64> = self.members.iter().map(|member| member.cache.epoch()).collect();
        let opened = self.store.opened;
        let mut opens = false;
        match step {
            Step::Tick => self.tick(),
            Step::Ask(at) => self.ask(at),
            Step::Reply(at, true) => self.reply(at)?,
            Step::Reply(at, false) => {
                self.lost += 1;
                self.members[at].queue.reply = None;
            }
            Step::Send(at) => self.send(at)?,
            Step::Answer(at, page) => opens = self.answer(at, page)?,
            Step::Told(at, true) => self.told(at),
            Step::Told(at, false) => {
                self.lost += 1;
                self.members[at].queue.told = None;
                self.members[at].report_ended();
            }
            Step::News(at, arrives) => self.news(at, arrives),
            Step::NewsAgain(at) => {
                let again = self.members[at].news[0].clone();
                self.news(at, true);
                self.members[at].news.insert(0, again);
                self.lost += 1;
            }
            Step::ReportAgain(at) => {
                self.lost += 1;
                if let Some(report) = self.members[at].report.take() {
                    opens = self.report(at, &report)?.0 == Change::Opened;
                }
            }
            Step::Look(at) => self.look(at),
            Step::Turn(at) => self.members[at].turn(),
            Step::Crash(at) => {
                self.crashes += 1;
                let asked = Moment(self.now, 0);
                self.members[at] = Member { asked, ..Self::open(1, None).members.remove(0) };
                return self.check();
            }
            Step::Sleep(at) => self.sleep(at),
            Step::Wake(at) => self.wake(at),
            Step::Flush | Step::Restart => {
                let snapshot = self.snapshot.clone();
                self.forget(if matches!(step, Step::Flush) {
                    Cooldown::default()
                } else {
                    snapshot
                });
                return self.check();
            }
            Step::Rest => {
                self.pass(LONG);
                self.forget(Cooldown::default());
                return self.check();
            }
            Step::Clock(forward) => self.set_clock(forward),
            Step::Forge(trip) => self.forge(trip),
        }
        if self.store.opened > opened && !opens {
            return Err("the scope was opened by what was brought back".to_owned());
        }
        for (member, before) in self.members.iter().zip(epochs) {
            if member.cache.epoch() < before {
                return Err("an epoch went back".to_owned());
            }
        }
        self.check()
    }

    fn tick(&mut self) {
        self.ticks += 1;
        self.pass(1);
    }

    /// Time passes, with a heartbeat at each step of every member that is not stopped.
    fn pass(&mut self, steps: i64) {
        for _ in 0..steps {
            self.now += 1;
            let now = Moment(self.now, 0);
            for member in self.members.iter_mut().filter(|member| member.sleeps.is_none()) {
                member.contact.note(now, true, now);
            }
        }
    }

    fn sleep(&mut self, at: usize) {
        self.sleeps += 1;
        self.members[at].sleeps = Some(self.now);
    }

    fn wake(&mut self, at: usize) {
        let member = &mut self.members[at];
        let Some(from) = member.sleeps.take() else { return };
        if self.now - from > CONTACT {
            member.slept = Some((from, self.now));
        }
    }

    /// The store loses what it knows, but for this.
    fn forget(&mut self, left: Cooldown) {
        self.faults += 1;
        self.forgot = true;
        self.store = left;
    }

    /// A cooldown ends early where the clock jumps forward over its end: that is the price.
    fn set_clock(&mut self, forward: bool) {
        self.faults += 1;
        self.skew += if forward { JUMP } else { -JUMP };
        self.trip = self.trip.filter(|_| !forward);
    }

    /// The store reads its clock.
    fn read_clock(&mut self) -> i64 {
        let now = self.now + self.skew;
        if self.defect == Some(Defect::TimesStay) {
            self.store.seen = 0;
        }
        self.store.observe(now);
        now
    }

    /// The last check before a request is sent.
    fn may_send(&self, member: &Member, leave: Leave) -> bool {
        let now = Moment(self.now, u8::MAX);
        let in_touch = member.contact.is_on(now) && member.contact.covers(member.asked);
        member.may_use(leave) && (in_touch || self.defect == Some(Defect::RightsOutliveASleep))
    }

    fn ask(&mut self, at: usize) {
        if let Some(unused) = self.members[at].queue.leave.take()
            && unused.probe != 0
        {
            self.members[at].cache.probe_ended();
        }
        let known = self.known(at);
        let now = self.read_clock();
        self.restore(known);
        let policy = policy();
        let turn = self.store.phase(now, &policy);
        let name = name(at, self.crashes);
        let lost = matches!(turn, Turn::Probing(_))
            && !known.holds_probe
            && self.defect != Some(Defect::ProbeOfNobody)
            && self.store.is_prober(&name);
        let (phase, come_back, tickets) = match turn {
            Turn::Open => (Phase::Open, 0, vec![now]),
            Turn::Cooling(until) => (Phase::Cooling, until, vec![]),
            Turn::Probing(until) if !lost => (Phase::Probing, until, vec![]),
            Turn::Probing(_) => {
                let probe = self.store.lend_again(now, LEASE);
                (Phase::Probe, self.store.probe_until, vec![probe])
            }
            Turn::Due => {
                self.store.lend_probe(&name, now, LEASE);
                (Phase::Probe, now + LEASE, vec![now])
            }
        };
        let granted = Granted {
            now,
            phase,
            epoch: self.store.epoch,
            come_back,
            members: 1,
            streak: self.store.streak,
            rate: 0.0,
            learned: learn::KnownRate::default(),
            user_is_over: false,
            windows: vec![],
            tickets,
            local: false,
        };
        self.members[at].queue.reply = Some((granted, Moment(self.now, 0)));
    }

    /// The state that a member sends with each call.
    fn known(&self, at: usize) -> KnownCooldown {
        let known = self.members[at].cache.known(Moment(self.now, 0), LONG);
        match self.defect {
            Some(Defect::CoolingIsNotTold) => KnownCooldown { phase: KnownPhase::Open, ..known },
            _ => known,
        }
    }

    fn restore(&mut self, known: KnownCooldown) {
        let forgot = known.epoch > self.store.epoch;
        let now = self.now + self.skew;
        self.store.restore(known, now);
        if forgot && known.phase.is_open() && self.defect == Some(Defect::RestoringOpens) {
            self.store.opened = now;
        }
    }

    fn reply(&mut self, at: usize) -> Result<(), String> {
        let (now, each_probes) = (self.now, self.defect == Some(Defect::ProbeOfEachQueue));
        let member = &mut self.members[at];
        let Some((granted, asked)) = member.queue.reply.take() else { return Ok(()) };
        let effect = member.cache.granted(&granted, asked, Moment(now, 1));
        member.hears_at(asked, now);
        member.hears(granted.epoch, granted.phase != Phase::Open);
        let is_theirs = granted.phase != Phase::Probe || effect.probe || each_probes;
        if let Some(ticket) = granted.tickets.first().filter(|_| is_theirs) {
            let probe = if granted.phase == Phase::Probe { *ticket } else { 0 };
            let leave = Leave { epoch: granted.epoch, probe };
            if member.may_use(leave) {
                member.queue.leave = Some(leave);
            } else if probe != 0 {
                member.cache.probe_ended();
            }
        }
        Ok(())
    }

    fn send(&mut self, at: usize) -> Result<(), String> {
        let now = self.now;
        let member = &mut self.members[at];
        let Some(leave) = member.queue.leave.take() else { return Ok(()) };
        member.queue.sent = Some(leave);
        let Some((epoch, from, until)) = self.trip else { return Ok(()) };
        let slept_through = member.slept.is_some_and(|(begin, end)| begin <= from && from < end);
        if slept_through && member.heard < epoch && now < until && !self.forgot {
            return Err(format!("member {at} sends into a cooldown that it slept through"));
        }
        if member.heard < epoch {
            return Ok(());
        }
        if now < until {
            return Err(format!("member {at} sends into a cooldown that it knows of"));
        }
        if leave.probe == 0 {
            return Err(format!("member {at} sends before the probe came back"));
        }
        let probes = self.members.iter().flat_map(Member::queues).filter_map(|queue| queue.sent);
        let alive = probes.filter(|sent| sent.probe > 0 && sent.probe + LEASE > now).count();
        // A flush, a crash or a forged message may cost one more.
        let most = 1 + usize::from(self.faults + self.crashes + self.forged > 0);
        if alive > most { Err(format!("{alive} probes at once")) } else { Ok(()) }
    }

    /// True if the response opens the scope.
    fn answer(&mut self, at: usize, page: bool) -> Result<bool, String> {
        let Some(leave) = self.members[at].queue.sent.take() else { return Ok(false) };
        let verdict = Verdict::Forbidden;
        let block = Answer::Block { weight: 1.0, retry_after: 0, sure: true, verdict };
        let answer = if page { Answer::Ok } else { block };
        let report = Report { probe: leave.probe, ..Report::new(leave.epoch, answer) };
        let (change, reported) = self.report(at, &report)?;
        let member = &mut self.members[at];
        member.queue.told = Some((reported, Moment(self.now, 0)));
        member.queue.told_of_probe = leave.probe != 0;
        // Only a rare event needs it, and each thing to remember makes more states.
        member.report = self.rare.then_some(report);
        Ok(change == Change::Opened)
    }

    /// The store takes a report, and everyone has the news.
    fn report(&mut self, at: usize, report: &Report) -> Result<(Change, Reported), String> {
        let now = self.read_clock();
        let before = self.store.epoch;
        let change = self.store.report(now, report, &policy());
        if change == Change::Tripped {
            match self.defect {
                Some(Defect::EpochsAreCounted) => self.store.epoch = before + 1,
                Some(Defect::EpochsAreTimes) => self.store.epoch = now.unsigned_abs(),
                _ => {}
            }
            if report.answer == Answer::Ok {
                return Err("a page tripped the scope".to_owned());
            }
            // Events of the same moment have the same number.
            if self.store.epoch < self.latest {
                return Err("a trip began an epoch that is not later than all before".to_owned());
            }
            self.latest = self.store.epoch;
            self.trip = Some((self.store.epoch, self.now, self.store.until - self.skew));
        }
        if change == Change::Opened {
            self.trip = None;
        }
        let what = match change {
            Change::Tripped => Some(What::Tripped),
            Change::Opened => Some(What::Opened),
            Change::ProbeLost => Some(What::Due),
            Change::None | Change::Stale | Change::Streak => None,
        };
        if let Some(what) = what {
            let news = news(what, self.store.epoch, (self.store.until - now).max(0));
            self.publish(&news, Some(at));
        }
        let reported = Reported {
            until: self.store.until,
            streak: self.store.streak,
            ..Reported::unchanged(now, self.store.epoch)
        };
        Ok((change, reported))
    }

    fn publish(&mut self, news: &ScopeNews, by: Option<usize>) {
        for (at, member) in self.members.iter_mut().enumerate() {
            if Some(at) != by && member.news.len() < 2 {
                member.news.push(news.clone());
            }
        }
    }

    fn forge(&mut self, trip: bool) {
        self.forged += 1;
        let what = if trip { What::Tripped } else { What::Opened };
        let epoch = if trip { FORGED } else { self.store.epoch };
        self.publish(&news(what, epoch, 3), None);
    }

    fn told(&mut self, at: usize) {
        let now = self.now;
        let member = &mut self.members[at];
        let Some((reported, asked)) = member.queue.told.take() else { return };
        member.report_ended();
        member.cache.reported(&reported, asked, Moment(now, 1));
        member.hears_at(asked, now);
        member.hears(reported.epoch, reported.until > 0);
    }

    fn news(&mut self, at: usize, arrives: bool) {
        let (now, defect) = (self.now, self.defect);
        let member = &mut self.members[at];
        let news = member.news.remove(0);
        if !arrives {
            self.lost += 1;
            return;
        }
        member.cache.pushed(&news, LONG, Moment(now, 1));
        if news.what == What::Opened && defect == Some(Defect::NewsOpen) {
            let open = Peeked { now, epoch: news.epoch, ..Peeked::default() };
            member.cache.peeked(&open, Moment(now, 2), Moment(now, 2));
        }
        if news.epoch < FORGED {
            member.hears(news.epoch, news.what == What::Tripped);
        }
    }

    fn look(&mut self, at: usize) {
        let known = self.known(at);
        let store_now = self.read_clock();
        let hinted = self.members[at].cache.is_hinted();
        if !hinted && known.is_urgent_for(self.store.epoch, self.store.until > 0) {
            self.restore(known);
        }
        let (now, store) = (self.now, &self.store);
        let peeked = Peeked {
            now: store_now,
            epoch: store.epoch,
            until: store.until,
            probe_until: if store.probe > 0 { store.probe_until } else { 0 },
            ..Peeked::default()
        };
        let member = &mut self.members[at];
        member.cache.peeked(&peeked, Moment(now, 2), Moment(now, 2));
        member.hears_at(Moment(now, 2), now);
        if hinted && peeked.epoch < member.heard {
            // A flush may cost this: a member that only has the news of the trip believes the
            // store, until another member restores it.
            member.heard = peeked.epoch;
        }
        member.hears(peeked.epoch, peeked.until > 0);
    }

    /// The invariants of every state.
    fn check(&self) -> Result<(), String> {
        if self.store.until > 0 && self.latest == 0 && self.forged == 0 {
            return Err("a cooldown without a block".to_owned());
        }
        self.comes_back()
    }

    /// No scope stays closed for ever, and a probe whose reply was lost is granted again.
    fn comes_back(&self) -> Result<(), String> {
        let idle = Queue::default();
        for (at, member) in self.members.iter().enumerate() {
            if member.queues().any(|queue| *queue != idle) || member.sleeps.is_some() {
                continue;
            }
            let mut later = self.clone();
            later.ask(at);
            let now = later.members[at].queue.reply.take();
            let name = name(at, self.crashes);
            if now.is_some_and(|(granted, _)| granted.tickets.is_empty())
                && self.store.is_prober(&name)
                && self.store.until <= self.now + self.skew
                && self.forged == 0
            {
                return Err(format!("member {at} does not get its own probe"));
            }
            let mut later = self.clone();
            // A clock that was set back counts from when it is read.
            later.read_clock();
            later.pass(LONG);
            later.ask(at);
            let granted = later.members[at].queue.reply.take();
            if granted.is_none_or(|(granted, _)| granted.tickets.is_empty()) {
                return Err(format!("member {at} waits for ever"));
            }
        }
        Ok(())
    }

    /// The state as a number: everything that influences the next steps.
    pub(crate) fn key(&self) -> u64 {
        let mut hasher = Digest(DefaultHasher::new());
        let counts = (self.crashes, self.sleeps, self.faults, self.forgot, self.forged, self.lost);
        let clocks = (self.now, self.ticks, self.skew);
        (clocks, self.trip, self.latest, counts).hash(&mut hasher.0);
        write!(hasher, "{:?}{:?}", self.store, self.members).unwrap();
        hasher.0.finish()
    }
}

impl Member {
    fn turn(&mut self) {
        std::mem::swap(&mut self.queue, &mut self.other);
    }

    fn queues(&self) -> impl Iterator<Item = &Queue> {
        [&self.queue, &self.other].into_iter()
    }

    fn may_use(&self, leave: Leave) -> bool {
        allows(self.cache.word(), leave.epoch, leave.probe != 0)
    }

    /// Whether nothing is on its way to it.
    fn is_quiet(&self) -> bool {
        let replies = |queue: &Queue| queue.reply.is_some() || queue.told.is_some();
        !self.queues().any(replies) && self.news.is_empty() && self.sleeps.is_none()
    }

    /// A reply to a call that was sent at `asked` has arrived.
    fn hears_at(&mut self, asked: Moment, now: i64) {
        // The lease knows whole steps of time only, so that there are fewer states.
        let asked = Moment(asked.0, 0);
        self.contact.note(asked, true, Moment(now, 0));
        self.asked = self.asked.max(asked);
    }

    fn hears(&mut self, epoch: u64, closed: bool) {
        if closed {
            self.heard = self.heard.max(epoch);
        }
    }

    /// The probe, if this was it, is out no more.
    fn report_ended(&mut self) {
        if std::mem::take(&mut self.queue.told_of_probe) {
            self.cache.probe_ended();
        }
    }
}

/// A member that takes a dead one's place has another name.
fn name(at: usize, crashes: u8) -> String {
    format!("{at}.{crashes}")
}

fn news(what: What, epoch: u64, remaining: i64) -> ScopeNews {
    ScopeNews {
        rule: Arc::from("a"),
        key: Arc::from(""),
        epoch,
        what,
        remaining,
        streak: 0.0,
        member: Arc::from("another"),
        cause: None,
        peak: 0.0,
        blocks: Blocks::default(),
        by: None,
    }
}

/// One block trips, for two steps of time.
fn policy() -> CooldownPolicy {
    CooldownPolicy {
        per: Split::All,
        after: 1.0,
        ratio: None,
        silence: None,
        on: Weights::default(),
        length: (Duration::from_micros(2), Duration::from_micros(2)),
        forget_after: Duration::from_micros(50),
        probe: true,
        grow: 1.0,
        max: Duration::from_micros(4),
        respect_retry_after: false,
        ramp: Duration::ZERO,
    }
}
