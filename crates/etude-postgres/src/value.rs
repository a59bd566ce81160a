//! Parameters of statements, each with its type.
//!
//! A statement that is prepared under a name learns the types of its parameters from the server. A statement without a
//! name must give them, to save that round trip: they follow from the Rust types.

use tokio_postgres::types::{ToSql, Type};

/// A parameter of a statement.
pub(crate) type Parameter<'p> = &'p (dyn Value + Sync);

/// A value that can be a parameter.
pub(crate) trait Value: ToSql {
    /// Type of the value in the database.
    fn type_of(&self) -> Type;

    /// The value in the client library's form.
    fn as_sql(&self) -> &(dyn ToSql + Sync);
}

impl<T: Typed + ToSql + Sync> Value for T {
    fn type_of(&self) -> Type {
        T::TYPE
    }

    fn as_sql(&self) -> &(dyn ToSql + Sync) {
        self
    }
}

/// A Rust type with one usual type in the database.
pub(crate) trait Typed {
    /// The usual type.
    const TYPE: Type;
    /// The type of arrays of it.
    const ARRAY: Type;
}

macro_rules! typed {
    ($($rust:ty: $one:ident, $many:ident;)+) => {$(
        impl Typed for $rust {
            const TYPE: Type = Type::$one;
            const ARRAY: Type = Type::$many;
        }
    )+};
}

typed! {
    bool: BOOL, BOOL_ARRAY;
    i32: INT4, INT4_ARRAY;
    i64: INT8, INT8_ARRAY;
    f64: FLOAT8, FLOAT8_ARRAY;
    String: TEXT, TEXT_ARRAY;
    &str: TEXT, TEXT_ARRAY;
    Vec<u8>: BYTEA, BYTEA_ARRAY;
    &[u8]: BYTEA, BYTEA_ARRAY;
}

impl<T: Typed> Typed for Option<T> {
    const TYPE: Type = T::TYPE;
    const ARRAY: Type = T::ARRAY;
}

impl<T: Typed> Typed for &T {
    const TYPE: Type = T::TYPE;
    const ARRAY: Type = T::ARRAY;
}

/// To the database, arrays of arrays are arrays.
impl<T: Typed> Typed for Vec<T> {
    const TYPE: Type = T::ARRAY;
    const ARRAY: Type = T::ARRAY;
}

impl<T: Typed> Typed for &[T] {
    const TYPE: Type = T::ARRAY;
    const ARRAY: Type = T::ARRAY;
}
