//! Values on their way into a statement, each with its SQL type.
//!
//! The type is sent along, so that one round trip suffices also where nothing may be prepared. Invariant: a Rust type has one
//! SQL type.

use tokio_postgres::types::{ToSql, Type};

/// A value with its SQL type, so that one round trip suffices also where nothing may be prepared.
pub trait Param: ToSql + Sync {
    /// The SQL type that this value is sent as.
    fn sql_type(&self) -> Type;
    /// The value itself.
    fn as_sql(&self) -> &(dyn ToSql + Sync);
}

macro_rules! params {
    ($($rust:ty => $sql:ident),* $(,)?) => {$(
        impl Param for $rust {
            fn sql_type(&self) -> Type { Type::$sql }
            fn as_sql(&self) -> &(dyn ToSql + Sync) { self }
        }
        impl Param for Option<$rust> {
            fn sql_type(&self) -> Type { Type::$sql }
            fn as_sql(&self) -> &(dyn ToSql + Sync) { self }
        }
    )*};
}
params! {
    bool => BOOL, i16 => INT2, i32 => INT4, i64 => INT8, f64 => FLOAT8, String => TEXT, &str => TEXT, Vec<u8> => BYTEA, &[u8] => BYTEA,
    uuid::Uuid => UUID, time::OffsetDateTime => TIMESTAMPTZ, Vec<i16> => INT2_ARRAY, Vec<i32> => INT4_ARRAY,
    Vec<i64> => INT8_ARRAY, Vec<String> => TEXT_ARRAY, Vec<&str> => TEXT_ARRAY, Vec<uuid::Uuid> => UUID_ARRAY,
}
