//! The write, and the arguments of calls that templates cannot express.

use serde_json::Value;

use super::assemble::{ALLOWED, Assembly, OPEN_HOLE};
use super::rows::leaves_of;
use super::{Spread, shaped};
use crate::commands;
use crate::guards;
use crate::program::{Argument, Condition, Scalar, Step, StepKind};
use crate::term::{Func, List, Ref, Source, Term};
use crate::value::{Kind, Path, is_nameable};

impl Assembly<'_, '_, '_> {
    /// Replaces arguments that are lists or objects with references by outputs of code. An argument with an open part is open
    /// as a whole. If a part reads the element of a loop, code makes the arguments of each call.
    pub(super) fn build(&mut self, step: &mut Step) {
        let StepKind::Call { args: Term::Object(members), for_each, .. } = &mut step.kind else { return };
        for (name, term) in members.iter_mut().filter(|(_, term)| term.needs_code()) {
            if term.refs().iter().any(|of| of.source == Source::Step(OPEN_HOLE.to_owned())) {
                *term = self.open(name.clone());
            }
        }
        if let Some(list) = for_each
            && members.iter().any(|(_, term)| term.needs_code() && is_of_element(term))
        {
            let list = List { of: list.clone(), kind: Kind::List };
            *for_each = Some(self.each_call(&step.name, list, members));
        }
        for (name, term) in members.iter_mut().filter(|(_, term)| term.needs_code()) {
            *term = Term::Ref(self.code(name, Func::Build(term.clone()), "an argument with parts"));
        }
    }

    /// Adds code for the arguments of each call over a list. Arguments that read the element become fields of its output. All
    /// are present before the first call.
    fn each_call(&mut self, step: &str, list: List, members: &mut [(String, Term)]) -> Ref {
        let mut fields = Vec::new();
        for (n, (name, term)) in members.iter_mut().enumerate().filter(|(_, (_, term))| is_of_element(term)) {
            let field = if is_nameable(name) { name.clone() } else { format!("value_{n}") };
            let item = Term::Ref(Ref::new(Source::Item, vec![field.clone()]));
            fields.push((field, std::mem::replace(term, item)));
        }
        self.code(&format!("{step}_calls"), Func::Rows { list, fields }, "the arguments of each call")
    }

    /// List of the elements that the calls of the write are for.
    fn spread_list(&mut self, spread: &Spread) -> List {
        match &spread.asked {
            None => self.place(spread.of, &spread.list),
            Some((var, choice)) => List { of: Ref::step(&self.question(*var, choice)), kind: Kind::List },
        }
    }

    pub(super) fn write(&mut self, tool: &str) -> Option<()> {
        let synth = self.synth;
        let first = synth.episodes.iter().flat_map(|episode| &episode.writes).next()?;
        // The order of the arguments is that of the first call; an argument that only other calls have is a hole.
        let of_path = |path: &Path| {
            let is_it = |argument: &Argument| argument.tool == tool && argument.path == *path;
            synth.vars.iter().position(|var| var.of_write() && is_it(&var.argument))
        };
        let spread_vars = synth.spread_vars();
        // Arguments that differ together are fields of one element, or there is no program.
        (spread_vars.len() < 2 || synth.spread.is_some()).then_some(())?;
        let of_var = |var: usize| Term::Ref(Ref::new(Source::Var(var), Path::new()));
        let is_empty = first.arguments.as_object().is_some_and(serde_json::Map::is_empty);
        let shape = shaped(&first.arguments, &mut |path| of_path(path).map(of_var));
        let mut unresolved = shape.or_else(|| is_empty.then(|| Term::Object(Vec::new())))?;
        let has = |path: &Path| crate::value::at(&first.arguments, path).is_some();
        for var in (0..synth.vars.len()).filter(|n| synth.vars[*n].of_write() && !has(&synth.vars[*n].argument.path)) {
            if let Term::Object(members) = &mut unresolved {
                members.push((synth.vars[var].name.clone(), of_var(var)));
            }
        }
        let list = synth.spread.as_ref().map(|spread| self.spread_list(spread));
        let mut args = match &synth.spread {
            None => self.term(&unresolved),
            Some(spread) => self.term(&unresolved.map(&|of| of_element(spread, of))),
        };
        let name = self.name(tool);
        self.rows(&name, &unresolved, &args);
        let for_each = match list {
            Some(list) => {
                let Term::Object(members) = &mut args else { return None };
                Some(self.each_call(&name, list, members))
            }
            None => match spread_vars.first() {
                Some(spread) => {
                    let Term::Ref(list) = self.var(*spread) else { return None };
                    let item = Term::Ref(Ref::new(Source::Item, Path::new()));
                    args = args.map(&|of| if *of == list { item.clone() } else { Term::Ref(of.clone()) });
                    Some(list)
                }
                None => None,
            },
        };
        let kind = StepKind::Call { tool: tool.to_owned(), args, for_each, is_write: true };
        let mut step = Step::new(&name, kind);
        let as_bound = step.clone();
        self.build(&mut step);
        step.require = self.computed(&step);
        step.require.extend(self.forms(&unresolved, &as_bound));
        let allowed = Ref::new(Source::Step(ALLOWED.to_owned()), vec!["allowed".to_owned()]);
        step.require.extend(guards::equalities(self));
        let types = self.types(&unresolved, &as_bound);
        step.require.extend(types);
        step.require.push(Condition::Equals(allowed, Value::from("yes")));
        self.program.steps.push(Step::new(ALLOWED, StepKind::Allowed));
        self.program.steps.push(step);
        Some(())
    }

    /// Conditions that the words of a command line have the form that they had in the runs (L-33).
    fn forms(&self, unresolved: &Term, step: &Step) -> Vec<Condition> {
        let StepKind::Call { args, .. } = &step.kind else { return Vec::new() };
        let resolved = leaves_of(args);
        let word = |(path, term): (Path, &Term)| {
            let Term::Ref(Ref { source: Source::Var(var), .. }) = term else { return None };
            let argument = &self.synth.vars[*var].argument;
            commands::place_of(&argument.tool, &argument.path)?;
            let written = resolved.iter().find(|(known, _)| *known == path)?.1;
            match written {
                Term::Ref(of) => Some(Condition::Form(of.clone(), self.synth.form(*var)?)),
                _ => None,
            }
        };
        leaves_of(unresolved).into_iter().filter_map(word).collect()
    }

    /// Conditions that values which the write copies from a result have the type that they had in the runs (2.6). A field
    /// that is null or of another type leads to the agent. If the tool's schema types an argument, the tool refuses other
    /// values itself.
    fn types(&self, unresolved: &Term, step: &Step) -> Vec<Condition> {
        let StepKind::Call { args, .. } = &step.kind else { return Vec::new() };
        let resolved = leaves_of(args);
        let is_call = |name: &str| {
            let is_it = |step: &&Step| step.name == name && matches!(step.kind, StepKind::Call { .. });
            self.program.steps.iter().any(|step| is_it(&step))
        };
        let typed = |(argument, term): (Path, &Term)| {
            let Term::Ref(Ref { source: Source::Var(var), .. }) = term else { return None };
            let var = &self.synth.vars[*var];
            let Term::Ref(of) = resolved.iter().find(|(known, _)| *known == argument)?.1 else { return None };
            let Source::Step(name) = &of.source else { return None };
            let is_result = name != OPEN_HOLE && (!of.path.is_empty() || is_call(name));
            let is_word = commands::place_of(&var.argument.tool, &var.argument.path).is_some();
            let mut scalars = var.values.iter().flatten().map(Scalar::from_value);
            let scalar = scalars.next().flatten()?;
            let is_same = is_result && !is_word && scalars.all(|other| other == Some(scalar));
            is_same.then(|| Condition::Typed { of: of.clone(), scalar, argument })
        };
        leaves_of(unresolved).into_iter().filter_map(typed).collect()
    }
}

/// True if a term reads the element of a loop.
fn is_of_element(term: &Term) -> bool {
    term.refs().iter().any(|of| of.source == Source::Item)
}

/// Field of the element for an argument; every other reference stays.
fn of_element(spread: &Spread, of: &Ref) -> Term {
    let field = match of.source {
        Source::Var(var) => spread.fields.get(&var),
        _ => None,
    };
    match field {
        Some(field) => Term::Ref(Ref::new(Source::Item, field.iter().chain(&of.path).cloned().collect())),
        None => Term::Ref(of.clone()),
    }
}
