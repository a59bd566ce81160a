//! `etude schema`: JSON Schemas for editors, from the same tables as the checks.

use crate::args::SchemaOf;
use crate::exit::Exit;
use crate::stdout;

pub(crate) fn schema(what: SchemaOf) -> Exit {
    let schema = match what {
        SchemaOf::Pipeline => etude_spec::pipeline_schema(),
        SchemaOf::Stage => etude_spec::stage_machine::stage_schema(),
        SchemaOf::Machine => etude_spec::stage_machine::machine_schema(),
        SchemaOf::Test => etude_spec::test_schema(),
        SchemaOf::Application => etude_spec::application_schema(),
        SchemaOf::Skill => etude_spec::skill_schema(),
        SchemaOf::Config => etude_spec::config::config_schema(),
    };
    stdout::documents(|out| writeln!(out, "{schema:#}"));
    Exit::Done
}
