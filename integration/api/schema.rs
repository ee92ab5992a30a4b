//! The schemas that answers are held against.

use jsonschema::{Retrieve, Uri, Validator};
use serde_json::Value;
use std::error::Error;
use std::fs;
use std::path::Path;

/// Finds the schemas that a schema refers to beside it.
struct Beside;

impl Retrieve for Beside {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn Error + Send + Sync>> {
        let path = uri.path().as_str();
        Ok(read(path.rsplit('/').next().unwrap_or(path)))
    }
}

fn read(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas").join(file);
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// `schemas/NAME.schema.json`, to hold many values against.
pub fn schema(name: &str) -> Validator {
    let schema = read(&format!("{name}.schema.json"));
    jsonschema::options().with_retriever(Beside).build(&schema).unwrap()
}

/// Asserts that `value` follows `schemas/NAME.schema.json`.
#[track_caller]
pub fn follows(name: &str, value: &Value) {
    let schema = schema(name);
    let errors: Vec<_> = schema.iter_errors(value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}: {value:#}");
}
