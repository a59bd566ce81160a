//! Tables of the fields of each kind of object. The checks, the labels under unknown fields, the notes of
//! `etude check --portable` and the JSON Schemas for editors all come from here.

/// Rows of a table of fields: `required "NAME": KIND, "EXAMPLE", "DOC" => default "VALUE", extension "CLAUSE";`
macro_rules! fields {
    ($($need:ident $name:literal: $kind:expr, $example:expr, $doc:expr $(=> $($attribute:ident $value:expr),+)?;)*) => {
        &[$($crate::fields::Field::$need($name, $kind, $example, $doc)$($(.$attribute($value))+)?),*]
    };
}

pub mod automation;
pub mod config;
mod kind;
pub mod learn;
pub mod package;
pub mod pipeline;
pub mod stage_machine;
pub mod test;
pub mod tool;

pub use kind::FieldKind;

/// A kind of mapping: its name and its fields.
#[derive(Debug)]
pub struct Object {
    /// Name in messages, with its article: `an llm step`.
    pub name: &'static str,
    /// Purpose of the object, in one sentence.
    pub doc: &'static str,
    /// Groups of fields, in listing order.
    pub fields: &'static [&'static [Field]],
}

/// One field of an object.
#[derive(Debug)]
pub struct Field {
    /// The key of the field, as files write it.
    pub name: &'static str,
    /// True if the object is invalid without the field.
    pub required: bool,
    /// Required form of the value.
    pub kind: FieldKind,
    /// Purpose of the field, in one sentence.
    pub doc: &'static str,
    /// The clause that adds the field, if the protocol itself does not have it.
    pub extension: Option<&'static str>,
    /// Default value, as YAML; empty if there is none.
    pub default: &'static str,
    /// An example value, as YAML.
    pub example: &'static str,
    /// Replacement for a reference in a field that is not a template. `REF` stands for the reference and `NAME` for a
    /// variable named after it. Empty if there is no replacement.
    pub instead: &'static str,
}

impl Field {
    pub(crate) const fn required(
        name: &'static str,
        kind: FieldKind,
        example: &'static str,
        doc: &'static str,
    ) -> Self {
        Self { name, required: true, kind, doc, extension: None, default: "", example, instead: "" }
    }

    pub(crate) const fn optional(
        name: &'static str,
        kind: FieldKind,
        example: &'static str,
        doc: &'static str,
    ) -> Self {
        Self { name, required: false, kind, doc, extension: None, default: "", example, instead: "" }
    }

    pub(crate) const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    pub(crate) const fn instead(self, instead: &'static str) -> Self {
        Self { instead, ..self }
    }

    pub(crate) const fn extension(self, clause: &'static str) -> Self {
        Self { extension: Some(clause), ..self }
    }
}

impl Object {
    /// Every field, in order.
    pub fn iter(&self) -> impl Iterator<Item = &'static Field> {
        self.fields.iter().flat_map(|group| group.iter())
    }

    /// The field with the name `name`, extensions included.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.iter().find(|field| field.name == name)
    }

    /// The names of all its fields.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.iter().map(|field| field.name)
    }

    /// The names of the fields that the protocol itself has.
    pub fn portable(&self) -> Vec<&'static str> {
        self.iter().filter(|field| field.extension.is_none()).map(|field| field.name).collect()
    }
}
