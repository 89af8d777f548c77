"""Makes JSON schemas for kubeconform: schemas.py SCHEMAS TARGET CRD...

SCHEMAS is a directory of the package kubernetes-validate. Each CRD is a YAML file with a
CustomResourceDefinition; files that do not exist are left out. TARGET gets one file for each kind, and the file
"complete" last."""

import json
import pathlib
import sys

import yaml


Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Loader.add_constructor("tag:yaml.org,2002:value", lambda loader, node: node.value)  # a plain "="


def strict(schema):
    """Refuses fields that the schema does not name, as kubectl does with --validate=strict."""
    if isinstance(schema, dict):
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        for value in schema.values():
            strict(value)
    elif isinstance(schema, list):
        for value in schema:
            strict(value)


def main(source, target, *definitions):
    target = pathlib.Path(target)
    target.mkdir(parents=True, exist_ok=True)
    for path in pathlib.Path(source).glob("*.json"):
        schema = json.loads(path.read_text().replace("/api/_definitions.json", "_definitions.json"))
        schema.pop("$id", None)  # references are to files beside this one
        (target / path.name).write_text(json.dumps(schema))
    for path in map(pathlib.Path, definitions):
        if not path.exists():
            continue
        for crd in yaml.load_all(path.read_text(), Loader):
            if not crd:
                continue
            spec = crd["spec"]
            for version in spec["versions"]:
                schema = version["schema"]["openAPIV3Schema"]
                strict(schema)
                # The API server checks it.
                schema["properties"]["metadata"] = {"type": "object"}
                name = "-".join((spec["names"]["kind"].lower(), spec["group"].split(".")[0], version["name"]))
                (target / f"{name}.json").write_text(json.dumps(schema))
    (target / "complete").touch()


if __name__ == "__main__":
    main(*sys.argv[1:])
