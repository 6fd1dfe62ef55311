//! JSON for typed structs, without serde's second reading of a struct.
//!
//! A derived `Deserialize` also takes an array for a struct (`["TEA-001", 2]` for an item): a caller's mistake would be
//! accepted. Here any reader of JSON is wrapped, all the way down (but for what serde buffers
//! itself: flattened members and untagged enums). Invariant: a struct is only ever read from an object.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};

/// Wraps a deserializer, and everything that is read with it: its visitors, seeds and accesses.
pub(crate) struct Objects<T>(pub(crate) T);

/// A visitor that is told of an object where a struct was asked for.
struct Struct<V>(V);

macro_rules! forward {
    ($($method:ident($($name:ident: $of:ty),*);)*) => {$(
        fn $method<V: Visitor<'de>>(self, $($name: $of,)* visitor: V) -> Result<V::Value, D::Error> {
            self.0.$method($($name,)* Objects(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Objects<D> {
    type Error = D::Error;

    /// What makes the difference: an object, and nothing else.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Objects(Struct(visitor)))
    }

    forward! {
        deserialize_any(); deserialize_bool(); deserialize_i8(); deserialize_i16(); deserialize_i32(); deserialize_i64();
        deserialize_i128(); deserialize_u8(); deserialize_u16(); deserialize_u32(); deserialize_u64(); deserialize_u128();
        deserialize_f32(); deserialize_f64(); deserialize_char(); deserialize_str(); deserialize_string();
        deserialize_bytes(); deserialize_byte_buf(); deserialize_option(); deserialize_unit(); deserialize_seq();
        deserialize_map(); deserialize_identifier(); deserialize_ignored_any();
        deserialize_unit_struct(name: &'static str); deserialize_newtype_struct(name: &'static str);
        deserialize_tuple(len: usize); deserialize_tuple_struct(name: &'static str, len: usize);
        deserialize_enum(name: &'static str, variants: &'static [&'static str]);
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! visit {
    ($($method:ident: $of:ty,)*) => {$(
        fn $method<E: serde::de::Error>(self, value: $of) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Objects<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    visit! {
        visit_bool: bool, visit_i8: i8, visit_i16: i16, visit_i32: i32, visit_i64: i64, visit_i128: i128, visit_u8: u8,
        visit_u16: u16, visit_u32: u32, visit_u64: u64, visit_u128: u128, visit_f32: f32, visit_f64: f64,
        visit_char: char, visit_str: &str, visit_borrowed_str: &'de str, visit_string: String, visit_bytes: &[u8],
        visit_borrowed_bytes: &'de [u8], visit_byte_buf: Vec<u8>,
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Objects(inner))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Objects(inner))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Objects(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Objects(members))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(Objects(variant))
    }
}

/// Only a map is ever offered to it; whatever else comes is a wrong type, in words of JSON.
impl<'de, V: Visitor<'de>> Visitor<'de> for Struct<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(members)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Objects<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Objects(inner))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Objects<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Objects(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Objects<A> {
    type Error = A::Error;

    // Of a name nothing is nested: it needs no wrapping.
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Objects(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for Objects<A> {
    type Error = A::Error;
    type Variant = Objects<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (name, variant) = self.0.variant_seed(seed)?;
        Ok((name, Objects(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Objects<A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.0.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.0.newtype_variant_seed(Objects(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.0.tuple_variant(len, Objects(visitor))
    }

    /// Readers offer an array where one stands; [`Struct`] refuses it.
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.0.struct_variant(fields, Objects(Struct(visitor)))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::Value;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Item {
        sku: String,
        quantity: i64,
        tags: Option<Vec<String>>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Wrapped(Item);

    #[derive(Debug, PartialEq, Deserialize)]
    enum Kind {
        Plain,
        One(Item),
        Pair(i64, Item),
        Named { item: Item },
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Everything {
        some: Option<Item>,
        wrapped: Wrapped,
        kinds: Vec<Kind>,
        #[serde(flatten)]
        rest: std::collections::BTreeMap<String, f64>,
    }

    /// From the text and from a value: both readers must say the same.
    fn read<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, String> {
        let direct = T::deserialize(Objects(&mut serde_json::Deserializer::from_str(text)));
        let value: Value = serde_json::from_str(text).unwrap();
        let again = T::deserialize(Objects(value));
        assert_eq!(direct.is_ok(), again.is_ok(), "{text}");
        direct.map_err(|fault| fault.to_string())
    }

    fn item() -> Item {
        Item { sku: "a".into(), quantity: 2, tags: None }
    }

    #[test]
    fn a_struct_is_read_from_an_object_only() {
        assert_eq!(read::<Vec<Item>>(r#"[{"sku":"a","quantity":2}]"#).unwrap(), [item()]);
        for wrong in [
            r#"[["a",2,null]]"#,
            r#"[{"sku":"a","quantity":2.0}]"#,
            r#"[{"sku":"a","quantity":2,"more":1}]"#,
            r#"[{"sku":"a","quantity":9223372036854775808}]"#,
            r#"[{"sku":1,"quantity":2}]"#,
            "{}",
        ] {
            assert!(read::<Vec<Item>>(wrong).is_err(), "{wrong} was accepted");
        }
        let refused = read::<Vec<Item>>(r#"[["a",2,null]]"#).unwrap_err();
        assert!(refused.starts_with("invalid type: sequence, expected an object"), "{refused}");
    }

    #[test]
    fn however_deep_a_struct_lies() {
        let object = r#"{"sku":"a","quantity":2}"#;
        let array = r#"["a",2,null]"#;
        let text = |some: &str, wrapped: &str, one: &str, pair: &str, named: &str| {
            format!(
                r#"{{"some":{some},"wrapped":{wrapped},"more":1.5,
                    "kinds":["Plain",{{"One":{one}}},{{"Pair":[1,{pair}]}},{{"Named":{named}}}]}}"#
            )
        };
        let inside = format!(r#"{{"item":{object}}}"#);
        let read_it = read::<Everything>(&text(object, object, object, object, &inside)).unwrap();
        assert_eq!(read_it.some, Some(item()));
        assert_eq!(read_it.wrapped, Wrapped(item()));
        assert_eq!(
            read_it.kinds,
            [Kind::Plain, Kind::One(item()), Kind::Pair(1, item()), Kind::Named { item: item() }]
        );
        assert_eq!(read_it.rest.get("more"), Some(&1.5));
        for wrong in [
            text(array, object, object, object, &inside),
            text(object, array, object, object, &inside),
            text(object, object, array, object, &inside),
            text(object, object, object, array, &inside),
            text(object, object, object, object, &format!("[{object}]")),
            text(object, object, object, object, &format!(r#"{{"item":{array}}}"#)),
        ] {
            assert!(read::<Everything>(&wrong).is_err(), "{wrong} was accepted");
        }
    }
}
