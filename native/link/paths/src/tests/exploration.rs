//! All interleavings of writes, ticks, answers, timers, losses, resumes and suspensions of a link with both paths.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use stateright::{Checker, Model, Property};

use crate::{Debt, Look, Notice, Path, Paths};

/// The step of time. The patience is four of them.
const STEP: Duration = Duration::from_millis(250);
const PATIENCE: u8 = 4;
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

const BOTH: [Path; 2] = [Path::Tcp, Path::QueuePair];

/// The peer's host behind one path. Times in steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Host {
    /// Since when it owes an answer.
    owes: Option<u8>,
    /// The last time that anything came, and that an answer did.
    heard: Option<u8>,
    answered: Option<u8>,
    /// Somebody waited for an answer, or a look has found that one is owed.
    is_active: bool,
    /// The node has suspected the path.
    is_told: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    paths: Paths,
    hosts: [Option<Host>; 2],
    step: u8,
    /// Told of a suspicion last.
    is_told_suspected: bool,
    broken: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// Bytes for which somebody waits.
    Write(Path),
    Tick(Path),
    /// All is answered.
    Answer(Path),
    /// All but the last write is answered.
    AnswerSome(Path),
    /// The peer sends something by itself.
    Hear(Path),
    Timer,
    Pass,
    Lose(Path),
    Resume(Path),
    Suspect,
}

struct Exploration {
    paths: Vec<Path>,
    steps: u8,
    /// Whether the kernel tells since when an answer is owed.
    tells: bool,
}

impl World {
    fn now(&self) -> Instant {
        *START + STEP * u32::from(self.step)
    }

    fn host(&mut self, path: Path) -> Option<&mut Host> {
        self.hosts[path as usize].as_mut()
    }

    fn look(&mut self, path: Path, tells: bool) {
        let (now, step) = (self.now(), self.step);
        let Some(host) = self.hosts[path as usize].as_mut() else {
            self.paths.handle_look(path, now, Look::UNKNOWN);
            return;
        };
        let since = |at: u8| STEP * u32::from(step - at);
        host.is_active |= host.owes.is_some();
        let look = Look {
            heard: host.heard.map_or(Duration::from_secs(3600), since),
            answered: host.answered.map_or(Duration::from_secs(3600), since),
            debt: host.owes.map_or(Debt::Nothing, |at| Debt::Owed {
                owed: if tells { since(at) } else { Duration::ZERO },
                due: Duration::ZERO,
            }),
        };
        let (owes, heard, answered, is_told) = (host.owes, host.heard, host.answered, host.is_told);
        let before = self.paths.is_suspected(path);
        self.paths.handle_look(path, now, look);
        let after = self.paths.is_suspected(path);
        let is_long = |at: Option<u8>, steps| at.is_none_or(|at| step - at >= steps);
        if after && !before && (owes.is_none() || !is_long(owes, PATIENCE / 2) || !is_long(answered, PATIENCE)) {
            self.broken = Some("suspected although it has answered in time");
        }
        if before && !after && is_told && heard.is_none() {
            self.broken = Some("trusted without an answer");
        }
        if before && !after && !is_told && owes.is_some() && answered.is_none() {
            self.broken = Some("trusted although it has never answered");
        }
        if !after {
            if let Some(host) = self.host(path) {
                host.is_told = false;
            }
        }
    }

    fn write(&mut self, path: Path, is_awaited: bool, tells: bool) {
        if self.hosts[path as usize].is_none() {
            return;
        }
        if self.paths.must_look_first(path) {
            self.look(path, tells);
        }
        let (now, step) = (self.now(), self.step);
        if let Some(host) = self.host(path) {
            host.owes.get_or_insert(step);
            host.is_active |= is_awaited;
        }
        if !is_awaited {
            self.paths.handle_tick_written(path);
        } else if self.paths.wants_data_written(path) {
            self.paths.handle_data_written(path, now);
        }
    }

    fn fire(&mut self, tells: bool) {
        let now = self.now();
        for path in BOTH {
            if self.paths.is_due(path, now) {
                self.look(path, tells);
            }
        }
    }

    fn act(&mut self, action: Action, tells: bool) {
        let step = self.step;
        match action {
            Action::Write(path) => self.write(path, true, tells),
            Action::Tick(path) => self.write(path, false, tells),
            Action::Answer(path) | Action::AnswerSome(path) => {
                if let Some(host) = self.host(path).filter(|host| host.owes.is_some()) {
                    (host.heard, host.answered) = (Some(step), Some(step));
                    host.owes = (action == Action::AnswerSome(path)).then_some(step);
                }
            }
            Action::Hear(path) => {
                if let Some(host) = self.host(path) {
                    host.heard = Some(step);
                }
            }
            Action::Timer => self.fire(tells),
            Action::Pass => self.step += 1,
            Action::Lose(path) => {
                self.hosts[path as usize] = None;
                self.paths.remove(path);
                let is_suspected = BOTH.iter().any(|&path| self.paths.is_suspected(path));
                self.is_told_suspected &= is_suspected;
            }
            Action::Resume(path) => {
                self.hosts[path as usize] = Some(Host::default());
                self.paths.add(path);
            }
            Action::Suspect => {
                let now = self.now();
                self.paths.hold_writes(now);
                for host in self.hosts.iter_mut().flatten() {
                    (host.is_told, host.heard) = (true, None);
                }
            }
        }
        self.check();
    }

    fn check(&mut self) {
        let is_suspected = BOTH.iter().any(|&path| self.paths.is_suspected(path));
        match self.paths.poll_notice() {
            Some(Notice::Trusted) if is_suspected || !self.is_told_suspected => {
                self.broken = Some("reported trust without a suspicion, or before its end");
            }
            Some(Notice::Suspected) if !is_suspected => self.broken = Some("reported a suspicion that is over"),
            Some(_) => self.is_told_suspected = is_suspected,
            None if is_suspected != self.is_told_suspected => self.broken = Some("a suspicion that is not told"),
            None => {}
        }
        let is_quiet = self.hosts.iter().flatten().all(|host| !host.is_active && !host.is_told);
        if is_quiet && self.paths.at().is_some() {
            self.broken = Some("a timer although nobody waits");
        }
    }

    /// The steps of time until no path is suspected, or until one is, from a state that a write follows.
    fn ends(&self, exploration: &Exploration, answers: bool) -> bool {
        let mut world = self.clone();
        for _ in 0..200 {
            if world.hosts == [None, None] {
                return true;
            }
            for path in BOTH {
                world.write(path, true, exploration.tells);
                if answers {
                    world.act(Action::Answer(path), exploration.tells);
                }
            }
            world.fire(exploration.tells);
            world.check();
            let mut suspected = BOTH.into_iter().filter(|&path| world.hosts[path as usize].is_some());
            let is_over = if answers {
                suspected.all(|path| !world.paths.is_suspected(path))
            } else {
                suspected.all(|path| world.paths.is_suspected(path))
            };
            if world.broken.is_some() || is_over {
                return world.broken.is_none();
            }
            world.step += 1;
        }
        false
    }
}

impl Model for Exploration {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut paths = Paths::default();
        paths.set_patience(Some(STEP * u32::from(PATIENCE)));
        let mut hosts = [None; 2];
        for &path in &self.paths {
            paths.add(path);
            hosts[path as usize] = Some(Host::default());
        }
        vec![World {
            paths,
            hosts,
            step: 0,
            is_told_suspected: false,
            broken: None,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_some() {
            return;
        }
        if world.step < self.steps {
            actions.push(Action::Pass);
        }
        actions.extend([Action::Timer, Action::Suspect]);
        for &path in &self.paths {
            match world.hosts[path as usize] {
                Some(_) => actions.extend([
                    Action::Write(path),
                    Action::Tick(path),
                    Action::Answer(path),
                    Action::AnswerSome(path),
                    Action::Lose(path),
                ]),
                None => actions.push(Action::Resume(path)),
            }
            // Each of two paths has the same watch as one alone.
            if self.paths.len() == 1 {
                actions.push(Action::Hear(path));
            }
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.act(action, self.tells);
        next.paths.forget_counts();
        if next.broken.is_none() {
            for (answers, broken) in [(true, "answers do not end it"), (false, "silence is not suspected")] {
                if !next.ends(self, answers) {
                    next.broken = Some(broken);
                }
            }
        }
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("nothing is broken", |_, world: &World| {
            world.broken.is_none()
        })]
    }
}

fn explore(exploration: Exploration) {
    let checker = exploration.checker().threads(2).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn one_path_whose_kernel_does_not_tell_since_when() {
    explore(Exploration {
        paths: vec![Path::Tcp],
        steps: 10,
        tells: false,
    });
}

#[test]
fn one_path_whose_kernel_tells_since_when() {
    explore(Exploration {
        paths: vec![Path::QueuePair],
        steps: 10,
        tells: true,
    });
}

#[test]
fn two_paths() {
    explore(Exploration {
        paths: BOTH.to_vec(),
        steps: 5,
        tells: false,
    });
}
