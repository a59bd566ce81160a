//! The rules of this repository, applied to the repository. The tests beside each check show that it can fail.

use std::sync::LazyLock;

use xtask::tree::{Tree, Violation, root};
use xtask::{
    acceptance, clauses, comments, documents, language, laws, manifest, platform, recipes, sizes, threats, words,
};

static TREE: LazyLock<Tree> = LazyLock::new(Tree::of_repository);

#[track_caller]
fn holds(violations: Vec<Violation>) {
    let list: Vec<String> = violations.iter().map(|violation| format!("  {violation}")).collect();
    assert!(list.is_empty(), "{} violations:\n{}", list.len(), list.join("\n"));
}

#[test]
fn the_tree_has_files() {
    assert!(TREE.paths().count() > 100, "the repository was not found, so that no rule could fail");
    assert!(TREE.text("crates/etude-core/src/machine.rs").is_some());
}

#[test]
fn law_1_core_is_pure() {
    holds(laws::absences(&TREE, 1));
    holds(laws::core_dependencies(&TREE));
}

#[test]
fn law_2_spec_reads_only_what_it_is_handed() {
    holds(laws::absences(&TREE, 2));
}

#[test]
fn law_3_runtime_knows_no_files_storage_or_face() {
    holds(laws::absences(&TREE, 3));
}

#[test]
fn law_4_models_know_no_plans_or_journals() {
    holds(laws::absences(&TREE, 4));
}

#[test]
fn law_5_engines_know_no_steps_and_not_each_other() {
    holds(laws::absences(&TREE, 5));
    holds(laws::conformance(&TREE));
}

#[test]
fn law_6_only_the_command_line_prints_and_reads_the_environment() {
    holds(laws::absences(&TREE, 6));
}

#[test]
fn law_7_inner_types_are_not_serialized() {
    holds(laws::serialization(&TREE));
}

#[test]
fn law_9_what_a_repository_names_is_opened_as_a_regular_file() {
    holds(laws::absences(&TREE, 9));
}

#[test]
fn law_11_pages_read_the_api_and_nothing_else() {
    holds(laws::absences(&TREE, 11));
}

#[test]
fn law_12_folders_need_each_other_in_no_circle() {
    holds(laws::cycles(&TREE));
}

#[test]
fn law_13_one_crate_makes_private_files() {
    holds(laws::absences(&TREE, 13));
}

#[test]
fn law_8_arrows_point_down() {
    holds(laws::absences(&TREE, 8));
    holds(laws::arrows(&TREE));
    holds(laws::constructs(&TREE));
    holds(laws::re_exports(&TREE));
}

#[test]
fn tables_of_law_8_name_modules_that_are_there() {
    let tables = [("crates/etude-spec/src", laws::FRONTS), ("crates/etude-core/src/machine", laws::CONSTRUCTS)];
    for (dir, name) in tables.iter().flat_map(|(dir, names)| names.iter().map(move |name| (dir, name))) {
        assert!(
            TREE.has(&format!("{dir}/{name}.rs")),
            "nothing can break the law for `{name}`: {dir} has no such module"
        );
    }
}

#[test]
fn manifests_inherit_lints_and_versions() {
    holds(manifest::check(&TREE));
}

#[test]
fn crates_from_elsewhere_only_become_fewer() {
    holds(manifest::packages(&TREE, manifest::PACKAGES));
}

#[test]
fn platform_code_stays_in_its_files() {
    holds(platform::check(&TREE));
}

#[test]
fn files_and_functions_are_short() {
    let (median, most, longest) = sizes::spread(&TREE).expect("there are sources");
    println!("lines of a file outside tests: median {median}, nine in ten under {most}, longest {longest}");
    holds(sizes::check(&TREE));
    assert!(most <= sizes::NINE_IN_TEN, "nine in ten files stay under {} lines, not {most}", sizes::NINE_IN_TEN);
}

#[test]
fn nothing_is_left_for_later() {
    holds(words::notes(&TREE));
}

#[test]
fn every_source_file_says_what_it_is_about() {
    holds(words::module_docs(&TREE));
}

#[test]
fn doc_comments_begin_with_their_subject() {
    holds(comments::headless(&TREE));
}

#[test]
fn doc_comments_add_to_the_name() {
    holds(comments::restated(&TREE));
}

#[test]
fn names_say_what_is_in_it() {
    holds(words::names(&TREE));
}

#[test]
fn names_of_tests_are_claims() {
    holds(words::test_names(&TREE));
}

#[test]
fn identifiers_use_the_words_of_the_field() {
    holds(language::identifiers(&TREE));
}

#[test]
fn prose_uses_the_words_of_the_field() {
    holds(language::prose(&TREE));
}

#[test]
fn links_lead_somewhere() {
    holds(documents::links(&TREE));
}

#[test]
fn documents_that_are_read_whole_are_short() {
    holds(documents::lengths(&TREE));
}

#[test]
fn the_code_map_names_what_is_there() {
    holds(documents::map(&TREE));
}

#[test]
fn a_tool_call_takes_few_forms_and_one_channel() {
    holds(documents::walk(&TREE));
}

#[test]
fn decisions_are_numbered() {
    holds(documents::decisions(&TREE));
}

#[test]
fn every_code_has_a_page() {
    holds(documents::pages(&TREE));
}

#[test]
fn nothing_is_true_on_one_machine_only() {
    holds(documents::machine_matters(&TREE));
}

#[test]
fn every_clause_is_held_by_a_test() {
    holds(clauses::check(&TREE));
}

#[test]
fn the_acceptance_tests_are_those_of_the_reference() {
    holds(acceptance::check(&TREE, &root().join("../shared/acceptance")));
}

#[test]
fn recipes_are_documented_commands() {
    holds(recipes::check(&TREE));
}

#[test]
fn every_promise_of_the_threat_model_cites_its_tests() {
    holds(threats::check(&TREE));
}
