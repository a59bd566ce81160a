//! Schema files: loading, checks, and bundling with the files they refer to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use etude_core::schema::Schema;
use serde_json::{Map, Value};

use crate::diagnose::{files as diagnose, values};
use crate::diagnostic::Diagnostic;
use crate::json_text;
use crate::schema_words;
use crate::source::{ReadFailure, SourceFile, Sources, Span, join};
use crate::yaml::{Node, place_in};

/// Maximum size of a schema file, in bytes.
const MAX_SIZE: u64 = 16 << 20;

/// A schema with the files it was built from.
pub(crate) struct SchemaFile {
    pub(crate) schema: Option<Arc<Schema>>,
    pub(crate) files: BTreeSet<String>,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// Loads the schema in `path`, which exists. Its patterns may take `left` bytes.
pub(crate) fn load(sources: &dyn Sources, path: &str, left: &mut usize) -> SchemaFile {
    let mut bundle = Bundle::new(sources, 0);
    let schema = bundle.root(path, left).map(Arc::new);
    SchemaFile { schema, files: bundle.files, diagnostics: bundle.diagnostics }
}

/// Loads the schema in `node` of `file`, resolving references as if it lay in `dir`; `name` is its name in messages.
/// Its patterns may take `left` bytes.
pub(crate) fn load_inline(
    sources: &dyn Sources,
    file: &Arc<SourceFile>,
    dir: &str,
    node: &Node<'_>,
    name: &str,
    left: &mut usize,
) -> SchemaFile {
    let mut bundle = Bundle::new(sources, node.span.start as usize);
    let schema = bundle.mapping(file, dir, node, name, left).map(Arc::new);
    SchemaFile { schema, files: bundle.files, diagnostics: bundle.diagnostics }
}

/// Bundles the schema `document` of `file` with the files it refers to, as if it lay in `dir`. The caller has checked
/// that it is a schema.
pub(crate) fn inline(
    sources: &dyn Sources,
    file: &Arc<SourceFile>,
    dir: &str,
    mut document: Value,
) -> (Value, Vec<Diagnostic>) {
    let mut bundle = Bundle::new(sources, 0);
    bundle.take_names(&document);
    bundle.inline(file, &format!("{dir}/-"), &mut document, "");
    bundle.add_defs(&mut document);
    (document, bundle.diagnostics)
}

struct Bundle<'a> {
    sources: &'a dyn Sources,
    files: BTreeSet<String>,
    /// Other files, by the names of their definitions.
    defs: Map<String, Value>,
    /// Names of definitions: of files by path, and of the document's own.
    names: BTreeMap<String, String>,
    taken: BTreeSet<String>,
    diagnostics: Vec<Diagnostic>,
    /// Start of the schema in its file, in bytes.
    start: usize,
}

impl<'a> Bundle<'a> {
    fn new(sources: &'a dyn Sources, start: usize) -> Self {
        Self {
            sources,
            files: BTreeSet::new(),
            defs: Map::new(),
            names: BTreeMap::new(),
            taken: BTreeSet::new(),
            diagnostics: Vec::new(),
            start,
        }
    }

    /// Builds the schema from a mapping of a definition.
    fn mapping(
        &mut self,
        file: &Arc<SourceFile>,
        dir: &str,
        node: &Node<'_>,
        name: &str,
        left: &mut usize,
    ) -> Option<Schema> {
        let mut document: Value = match node.to_json() {
            Ok(text) => serde_json::from_str(&text).ok()?,
            Err(at) => {
                self.diagnostics.push(values::not_json(file, at, "`schema`"));
                return None;
            }
        };
        let faults = meta_faults(&document);
        if !faults.is_empty() {
            self.diagnostics.extend(faults.into_iter().map(|fault| {
                let at = place_in(node, &fault.pointer);
                diagnose::not_a_schema(file, at, "schema", &fault.why).maybe_hint(fault.hint)
            }));
            return None;
        }
        self.diagnostics.extend(schema_words::in_yaml(file, node, &document));
        self.take_names(&document);
        self.inline(file, &format!("{dir}/-"), &mut document, "");
        if self.diagnostics.iter().any(Diagnostic::is_error) {
            return None;
        }
        self.add_defs(&mut document);
        let schema = Schema::compile_within(name, document, BTreeMap::new(), left);
        schema.map_err(|why| self.diagnostics.push(diagnose::not_a_schema(file, node.span, "schema", &why))).ok()
    }

    fn root(&mut self, path: &str, left: &mut usize) -> Option<Schema> {
        let (file, mut document) = self.read(path)?;
        self.check(&file, &document)?;
        self.take_names(&document);
        self.inline(&file, path, &mut document, "");
        if self.diagnostics.iter().any(Diagnostic::is_error) {
            return None;
        }
        self.add_defs(&mut document);
        match Schema::compile_within(path, document, BTreeMap::new(), left) {
            Ok(schema) => Some(schema),
            Err(why) => {
                let at = Span::new(0, 1);
                self.diagnostics.push(diagnose::not_a_schema(&file, at, path, &why));
                None
            }
        }
    }

    /// Puts the other files into `$defs`.
    fn add_defs(&mut self, document: &mut Value) {
        if !self.defs.is_empty()
            && let Some(members) = document.as_object_mut()
        {
            let defs = members.entry("$defs").or_insert_with(|| Value::Object(Map::new()));
            if let Some(defs) = defs.as_object_mut() {
                defs.extend(std::mem::take(&mut self.defs));
            }
        }
    }

    /// Reserves the definition names of the document itself.
    fn take_names(&mut self, document: &Value) {
        let own = document.get("$defs").and_then(Value::as_object).into_iter().flat_map(Map::keys);
        self.taken.extend(own.cloned());
    }

    /// A unique name for the definition that a file becomes.
    fn name(&mut self, path: &str) -> String {
        let plain = path.replace(['/', '~', '%', ' '], "_");
        let numbered = (2..).map(|number| format!("{plain}_{number}"));
        let name = std::iter::once(plain.clone()).chain(numbered).find(|name| !self.taken.contains(name));
        let name = name.unwrap_or(plain);
        self.taken.insert(name.clone());
        self.names.insert(path.to_owned(), name.clone());
        name
    }

    fn read(&mut self, path: &str) -> Option<(Arc<SourceFile>, Value)> {
        self.files.insert(path.to_owned());
        let bytes = match self.sources.read(path, MAX_SIZE) {
            Ok(bytes) => bytes,
            Err(failure) => {
                self.diagnostics.push(match failure {
                    ReadFailure::TooLarge { len } => diagnose::too_large(path, len, MAX_SIZE),
                    ReadFailure::Other(why) => diagnose::unreadable(path, &why),
                    _ => diagnose::unreadable(path, "it is no longer there"),
                });
                return None;
            }
        };
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                self.diagnostics.push(diagnose::not_utf8(path, error.as_bytes()));
                return None;
            }
        };
        let file = SourceFile::new(path, text);
        match serde_json::from_str(file.text()) {
            Ok(document) => Some((file, document)),
            Err(error) => {
                let line = file.line_range(u32::try_from(error.line()).unwrap_or(1));
                let at = (line.start + error.column().saturating_sub(1)).min(line.end.max(line.start + 1) - 1);
                let at = file.text().floor_char_boundary(at);
                let why = json_text::json_fault(file.text(), &error);
                self.diagnostics.push(diagnose::schema_not_json(&file, Span::new(at, at + 1), path, &why));
                None
            }
        }
    }

    /// Checks the document against the meta-schema of its draft.
    fn check(&mut self, file: &Arc<SourceFile>, document: &Value) -> Option<()> {
        if !document.is_object() && !document.is_boolean() {
            let why = "a schema is an object";
            self.diagnostics.push(diagnose::not_a_schema(
                file,
                Span::new(0, file.text().trim_end().len()),
                file.path(),
                why,
            ));
            return None;
        }
        let faults = meta_faults(document);
        if faults.is_empty() {
            self.diagnostics.extend(schema_words::in_json(file, document));
            return Some(());
        }
        self.diagnostics.extend(faults.into_iter().map(|fault| {
            let place = json_text::locate(file.text(), &fault.pointer);
            let at = Span::new(place.start, place.end);
            diagnose::not_a_schema(file, at, file.path(), &fault.why).maybe_hint(fault.hint)
        }));
        None
    }

    /// Replaces references to other files by references into `$defs`. `prefix` is the later position of this file's
    /// document.
    fn inline(&mut self, file: &Arc<SourceFile>, path: &str, schema: &mut Value, prefix: &str) {
        let Value::Object(members) = schema else { return };
        if let Some(Value::String(reference)) = members.get("$ref") {
            let reference = reference.clone();
            if let Some(rewritten) = self.follow(file, path, &reference, prefix) {
                members.insert("$ref".to_owned(), Value::String(rewritten));
            }
        }
        for (key, value) in members {
            match (key.as_str(), value) {
                // Data, not schemas.
                ("enum" | "const" | "default" | "examples", _) => {}
                (
                    "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                    Value::Object(all),
                ) => {
                    all.values_mut().for_each(|value| self.inline(file, path, value, prefix));
                }
                (_, Value::Array(all)) => all.iter_mut().for_each(|value| self.inline(file, path, value, prefix)),
                (_, value) => self.inline(file, path, value, prefix),
            }
        }
    }

    /// The replacement for `reference` in the bundled document; `None` if it stays unchanged.
    fn follow(&mut self, file: &Arc<SourceFile>, path: &str, reference: &str, prefix: &str) -> Option<String> {
        let (target, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        if target.is_empty() {
            // A plain-name fragment is an anchor, which is found wherever it stands.
            let is_pointer = fragment.is_empty() || fragment.starts_with('/');
            return (is_pointer && !prefix.is_empty()).then(|| format!("#{prefix}{fragment}"));
        }
        if target.contains("json-schema.org/") || target.starts_with("urn:") {
            return None;
        }
        if target.contains("://") {
            let hint = "copy that schema into the app and refer to it by its path: nothing is fetched from elsewhere";
            self.refuse(file, reference, "it is on another host", hint);
            return None;
        }
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let Some(full) = join(dir, target) else {
            self.refuse(file, reference, "it lies outside the app's directory", "copy that schema into the app");
            return None;
        };
        let known = self.names.get(&full).cloned();
        let is_new = known.is_none();
        let key = known.unwrap_or_else(|| self.name(&full));
        let place = format!("/$defs/{key}");
        if is_new {
            self.defs.insert(key.clone(), Value::Bool(true));
            match self.sources.kind(&full) {
                Ok(_) => {}
                Err(ReadFailure::Outside) => {
                    self.refuse(
                        file,
                        reference,
                        "it lies outside the app's directory",
                        "copy that schema into the app",
                    );
                    return None;
                }
                Err(_) => {
                    let why = format!("{full} does not exist");
                    self.refuse(
                        file,
                        reference,
                        &why,
                        "the path is relative to the directory of the file that contains it",
                    );
                    return None;
                }
            }
            let (other, mut document) = self.read(&full)?;
            self.check(&other, &document)?;
            if let Some(members) = document.as_object_mut() {
                members.shift_remove("$id");
                members.shift_remove("$schema");
            }
            self.inline(&other, &full, &mut document, &place);
            self.defs.insert(key, document);
        }
        Some(format!("#{place}{fragment}"))
    }

    fn refuse(&mut self, file: &Arc<SourceFile>, reference: &str, why: &str, hint: &str) {
        // YAML may write the reference without quotes, or with others. Referenced files are read from their start.
        let text = file.text();
        let start = if self.files.contains(file.path()) { 0 } else { self.start };
        let quoted = Value::from(reference).to_string();
        let place = |words: &str| text[start..].find(words).map(|at| Span::new(start + at, start + at + words.len()));
        let at = place(&quoted).or_else(|| place(reference)).unwrap_or(Span::new(start, start));
        self.diagnostics.push(diagnose::schema_reference(file, at, reference, why, hint));
    }
}

/// Fault of a schema document: the JSON pointer to it, the reason, and a hint if there is one.
pub(crate) struct MetaFault {
    pub(crate) pointer: String,
    pub(crate) why: String,
    pub(crate) hint: Option<String>,
}

/// All faults of a document against the meta-schema of its draft, each place and reason once.
pub(crate) fn meta_faults(document: &Value) -> Vec<MetaFault> {
    let fault = |error: &jsonschema::ValidationError<'_>| {
        let pointer = error.instance_path().to_string();
        let (why, hint) = meta_words(&pointer, error.instance(), &error.to_string());
        MetaFault { pointer, why, hint }
    };
    let validator = match jsonschema::meta::validator_for(document) {
        Ok(validator) => validator,
        Err(error) => return vec![fault(&error)],
    };
    let mut faults: Vec<MetaFault> = Vec::new();
    for error in validator.iter_errors(document) {
        let fault = fault(&error);
        if faults.iter().all(|known| (&known.pointer, &known.why) != (&fault.pointer, &fault.why)) {
            faults.push(fault);
        }
    }
    faults
}

/// The meta-schema's complaint in words that name the keyword, with a hint if there is one.
fn meta_words(pointer: &str, value: &Value, complaint: &str) -> (String, Option<String>) {
    let keyword = pointer.rsplit('/').find(|token| token.parse::<usize>().is_err()).unwrap_or_default();
    if keyword == "type" {
        let types = ["string", "integer", "number", "boolean", "array", "object", "null"];
        let hint = value.as_str().and_then(|word| crate::wording::meant(word, types));
        return (
            format!("`type` cannot be {value}"),
            hint.or(Some(format!("types are {}", crate::wording::list(&types)))),
        );
    }
    let why = if keyword.is_empty() { complaint.to_owned() } else { format!("at `{pointer}`: {complaint}") };
    (why, None)
}
