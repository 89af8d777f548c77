package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"

	"github.com/alecthomas/kong"
)

// fileSizeMax bounds a settings file: all settings at their longest fit in a
// few kilobytes.
const fileSizeMax = 1 << 20

// BeforeResolve reads the file named by --config or ISOTONE_CONFIG. Kong calls it
// after it has read the command line. It keeps faults of the file for Parse, so it
// returns nil.
func (f *Flags) BeforeResolve(ctx *kong.Context) error {
	path := f.File
	for _, flag := range ctx.Flags() {
		if flag.Name == "config" {
			path, _ = ctx.FlagValue(flag).(string)
		}
	}
	values, faults := layer{}, Faults(nil)
	if path != "" {
		values, faults = readFile(path)
	}
	f.fileFaults = faults
	ctx.AddResolver(values)
	return nil
}

// layer is a kong resolver: the values of a file by flag name. Without Resolve's
// care, kong would let a resolver override the environment.
type layer map[string]string

// Resolve returns the text of a flag that the command line does not set, or nil to
// keep what kong found in the environment or the default.
func (l layer) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if _, known := envOf[flag.Name]; !known {
		return nil, nil
	}
	empty := false
	for _, env := range flag.Envs {
		text, set := os.LookupEnv(env)
		if text != "" {
			return nil, nil
		}
		empty = empty || set
	}
	if text, ok := l[flag.Name]; ok {
		return text, nil
	}
	if empty {
		return flag.Default, nil
	}
	return nil, nil
}

// Validate implements [kong.Resolver]; [Flags.Parse] reports the faults.
func (l layer) Validate(*kong.Application) error { return nil }

// readFile reads a JSON object of strings, numbers and booleans. It returns the valid
// values and everything that is wrong with the rest.
func readFile(path string) (layer, Faults) {
	var faults Faults
	fault := func(format string, args ...any) {
		faults.add("config", path, fmt.Sprintf(format, args...))
	}
	raw, err := decodeFile(path)
	if err != nil {
		fault("%v", err)
	}
	values := layer{}
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		if _, known := envOf[key]; !known || key == "config" {
			fault("unknown key %q; keys are flag names, such as \"http-port\"", key)
			continue
		}
		switch v := raw[key].(type) {
		case string, json.Number, bool:
			values[key] = fmt.Sprint(v)
		default:
			fault("key %q: want a string, a number or a boolean", key)
		}
	}
	return values, faults
}

// decodeFile returns the JSON object in a file, with numbers as they are written.
func decodeFile(path string) (map[string]any, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	d := json.NewDecoder(io.LimitReader(f, fileSizeMax))
	d.UseNumber()
	raw, repeated, err := decodeObject(d)
	if err != nil {
		return nil, fmt.Errorf("want a JSON object of at most %d bytes: %w", fileSizeMax, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("want nothing after the JSON object")
	}
	if repeated != "" {
		return raw, fmt.Errorf("key %q is there twice", repeated)
	}
	return raw, nil
}

// decodeObject decodes the object that follows, and returns a key that it has twice, or "".
func decodeObject(d *json.Decoder) (raw map[string]any, repeated string, err error) {
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, "", cmp.Or(err, errors.New("it begins with something else"))
	}
	raw = map[string]any{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, "", err
		}
		name := key.(string) // as the decoder guarantees
		if _, again := raw[name]; again {
			repeated = name
		}
		var value any
		if err := d.Decode(&value); err != nil {
			return nil, "", err
		}
		raw[name] = value
	}
	_, err = d.Token()
	return raw, repeated, err
}

// envOf has the environment variable of every setting by its flag, as the tags of
// Flags give them.
var envOf = func() map[string]string {
	envs := map[string]string{}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Flags]()) {
		if field.IsExported() {
			envs[field.Tag.Get("name")] = field.Tag.Get("env")
		}
	}
	return envs
}()
