//! Parameters of statements, each with its type.
//!
//! A statement that is prepared under a name learns the types of its parameters from the server. One without a name must say them, or the
//! answer would be waited for: what a value is in Rust says it.

use tokio_postgres::types::{ToSql, Type};

/// A parameter of a statement.
pub(crate) type Parameter<'p> = &'p (dyn Value + Sync);

/// Something that can be a parameter.
pub(crate) trait Value: ToSql {
    /// Its type in the database.
    fn type_of(&self) -> Type;

    /// As the client library takes it.
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

/// A type of which one type of the database is the usual one.
pub(crate) trait Typed {
    /// It.
    const TYPE: Type;
    /// That of an array of it.
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

/// Arrays of arrays are arrays to the database.
impl<T: Typed> Typed for Vec<T> {
    const TYPE: Type = T::ARRAY;
    const ARRAY: Type = T::ARRAY;
}

impl<T: Typed> Typed for &[T] {
    const TYPE: Type = T::ARRAY;
    const ARRAY: Type = T::ARRAY;
}
