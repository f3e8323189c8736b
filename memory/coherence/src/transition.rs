//! Transition tables: the states of a page, the events that concern it, and the actions that they
//! cause. Both protocols define their pages by such a table.
//!
//! A table is data. The state machine of a node looks its transitions up in it, and the diagrams in
//! `docs/coherence.md` are generated from it. It is complete: an event without a rule cannot happen
//! in that state. The compiler rejects a table with two rules for one state and event.

use std::fmt::{Debug, Write};

/// A transition: `event` in `state` leads to `next` and causes `actions`.
#[derive(Clone, Copy, Debug)]
pub struct Rule<S: 'static, E: 'static, A: 'static> {
    /// The state before.
    pub state: S,
    /// The event.
    pub event: E,
    /// The state after.
    pub next: S,
    /// The actions, in the order in which they are carried out.
    pub actions: &'static [A],
    /// The index of the state, and the index of the event.
    pub cell: (usize, usize),
}

/// The rules of a page, with an index by state and event.
#[derive(Clone, Copy, Debug)]
pub struct Table<S: 'static, E: 'static, A: 'static, const STATES: usize, const EVENTS: usize> {
    rules: &'static [Rule<S, E, A>],
    /// The states of a page that no node has used.
    initial: &'static [S],
    /// The actions that a diagram omits if the state does not change.
    minor: &'static [A],
    /// The index of each rule, by state and event.
    cells: [[Option<u8>; EVENTS]; STATES],
}

impl<S: 'static, E: 'static, A: 'static, const STATES: usize, const EVENTS: usize>
    Table<S, E, A, STATES, EVENTS>
{
    /// Builds the index of these rules.
    ///
    /// # Panics
    /// Two rules have the same state and event. In a constant this is an error of the compiler.
    pub const fn new(
        rules: &'static [Rule<S, E, A>],
        initial: &'static [S],
        minor: &'static [A],
    ) -> Self {
        assert!(rules.len() <= u8::MAX as usize, "more rules than the index can hold");
        let mut cells = [[None; EVENTS]; STATES];
        let mut at = 0;
        while at < rules.len() {
            let (state, event) = rules[at].cell;
            let cell = &mut cells[state][event];
            assert!(cell.is_none(), "two rules for one state and event");
            *cell = Some(at as u8);
            at += 1;
        }
        Self { rules, initial, minor, cells }
    }

    /// Returns all rules.
    pub fn rules(&self) -> &'static [Rule<S, E, A>] {
        self.rules
    }

    /// Returns the rule for a state and an event, given by their indices, or `None` if the event
    /// cannot happen.
    pub fn rule(&self, state: usize, event: usize) -> Option<&'static Rule<S, E, A>> {
        let rules = self.rules;
        self.cells[state][event].map(|at| &rules[usize::from(at)])
    }
}

impl<S, E, A, const STATES: usize, const EVENTS: usize> Table<S, E, A, STATES, EVENTS>
where
    S: Copy + Debug + PartialEq + 'static,
    E: Debug + 'static,
    A: Debug + PartialEq + 'static,
{
    /// Returns the indices of the states that no sequence of events reaches, and the indices of the
    /// events that no rule names. Both lists of a correct table are empty.
    pub fn unused(&self) -> (Vec<usize>, Vec<usize>) {
        let mut reached = self.initial.to_vec();
        let mut at = 0;
        while at < reached.len() {
            let from = reached[at];
            for rule in self.rules.iter().filter(|rule| rule.state == from) {
                if !reached.contains(&rule.next) {
                    reached.push(rule.next);
                }
            }
            at += 1;
        }
        let is_reached = |state: usize| {
            self.rules.iter().any(|rule| rule.cell.0 == state && reached.contains(&rule.state))
        };
        let is_named = |event: usize| self.rules.iter().any(|rule| rule.cell.1 == event);
        let states = (0..STATES).filter(|&state| !is_reached(state)).collect();
        (states, (0..EVENTS).filter(|&event| !is_named(event)).collect())
    }

    /// Returns the rules as a Mermaid state diagram. It omits rules that keep the state and have
    /// only minor actions.
    pub fn diagram(&self) -> String {
        let mut text = String::from("stateDiagram-v2\n");
        for state in self.initial {
            writeln!(text, "    [*] --> {state:?}").expect("a string takes all text");
        }
        let is_minor = |rule: &Rule<S, E, A>| {
            rule.next == rule.state && rule.actions.iter().all(|it| self.minor.contains(it))
        };
        for rule in self.rules {
            if is_minor(rule) {
                continue;
            }
            let Rule { state, event, next, actions, .. } = rule;
            let actions: Vec<_> = actions.iter().map(|action| format!("{action:?}")).collect();
            let actions = match actions.is_empty() {
                true => String::new(),
                false => format!(" / {}", actions.join(", ")),
            };
            writeln!(text, "    {state:?} --> {next:?}: {event:?}{actions}")
                .expect("a string takes all text");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum State {
        Off,
        On,
        Lost,
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Press,
        Wait,
        Drop,
    }

    const fn rule(
        state: State,
        event: Event,
        next: State,
        actions: &'static [char],
    ) -> Rule<State, Event, char> {
        Rule { state, event, next, actions, cell: (state as usize, event as usize) }
    }

    static TABLE: Table<State, Event, char, 3, 3> = Table::new(
        &[
            rule(State::Off, Event::Press, State::On, &['a', 'b']),
            rule(State::On, Event::Press, State::Off, &[]),
            rule(State::On, Event::Wait, State::On, &['m']),
            rule(State::Lost, Event::Press, State::Lost, &['m']),
        ],
        &[State::Off],
        &['m'],
    );

    #[test]
    fn lookup_finds_the_rule_of_each_cell_and_no_other() {
        for state in 0..3 {
            for event in 0..3 {
                let rule = TABLE.rule(state, event);
                assert_eq!(rule.map(|rule| rule.cell), rule.map(|_| (state, event)));
            }
        }
        let found = (0..9).filter(|at| TABLE.rule(at / 3, at % 3).is_some()).count();
        assert_eq!(found, TABLE.rules().len());
        assert!(TABLE.rule(State::Off as usize, Event::Drop as usize).is_none());
    }

    #[test]
    fn unused_names_unreachable_states_and_events_without_rules() {
        assert_eq!(TABLE.unused(), (vec![State::Lost as usize], vec![Event::Drop as usize]));
    }

    #[test]
    fn diagram_omits_rules_without_effect() {
        let diagram = "stateDiagram-v2\n    [*] --> Off\n    Off --> On: Press / 'a', 'b'\n    On \
                       --> Off: Press\n";
        assert_eq!(TABLE.diagram(), diagram);
    }
}
