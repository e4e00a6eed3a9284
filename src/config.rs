//! The rule file: from YAML to runtime types, every mistake told at once.
