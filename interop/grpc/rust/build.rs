//! Compiles the schema, without protoc. SCHEMA is its directory.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = std::env::var("SCHEMA")?;
    println!("cargo:rerun-if-changed={schema}");
    println!("cargo:rerun-if-env-changed=SCHEMA");
    let files = protox::compile(["isotone/v1/isotone.proto"], [schema.as_str()])?;
    tonic_prost_build::configure().build_server(false).compile_fds(files)?;
    Ok(())
}
