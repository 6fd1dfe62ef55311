//! JSON for typed structs, without serde's second reading of a struct.
//!
//! A derived `Deserialize` also takes an array for a struct (`["TEA-001", 2]` for an item): a caller's mistake would be
//! accepted. Invariant: a struct is only ever read from an object.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor};
use serde_json::{Error, Value};

/// A JSON value on its way into a type.
pub(crate) struct Node(pub(crate) Value);

impl<'de> IntoDeserializer<'de, Error> for Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Node {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(values) => {
                let mut elements = SeqDeserializer::new(values.into_iter().map(Node));
                let read = visitor.visit_seq(&mut elements)?;
                elements.end()?;
                Ok(read)
            }
            Value::Object(members) => {
                let mut members =
                    MapDeserializer::new(members.into_iter().map(|(key, value)| (key, Node(value))));
                let read = visitor.visit_map(&mut members)?;
                members.end()?;
                Ok(read)
            }
            scalar => scalar.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(_) => Err(Error::invalid_type(Unexpected::Seq, &"an object")),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Item {
        sku: String,
        quantity: i64,
        tags: Option<Vec<String>>,
    }

    #[test]
    fn a_struct_is_read_from_an_object_only() {
        let read = |value| Vec::<Item>::deserialize(Node(value));
        let item = Item { sku: "a".into(), quantity: 2, tags: None };
        assert_eq!(read(json!([{ "sku": "a", "quantity": 2 }])).unwrap(), [item]);
        for wrong in [
            json!([["a", 2, null]]),
            json!([{ "sku": "a", "quantity": 2.0 }]),
            json!([{ "sku": "a", "quantity": 2, "more": 1 }]),
            json!([{ "sku": "a", "quantity": 9_223_372_036_854_775_808_u64 }]),
            json!([{ "sku": 1, "quantity": 2 }]),
            json!({}),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong} was accepted");
        }
    }
}
