// Package backup owns two files: the backup of a cluster, and the seed from which a node forms
// a restored one. It knows neither the state that they hold nor where they come from. It
// writes files so that a crash at any moment leaves the old file or the new one.
//
// Both are one JSON object each, with a checksum of everything else in it. Functions are safe
// for concurrent use.
package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"
)

// Format is the version of both files.
const Format = 1

// sizeMax bounds a file in bytes. A snapshot has at most 16 MiB (internal/core/journal), which base64 makes 21.4.
const sizeMax = 32 << 20

// Document is a backup.
type Document struct {
	Format int `json:"format"`
	// ClusterID has 16 hexadecimal digits.
	ClusterID string `json:"clusterID"`
	// Taken is by the clock of the node that made the backup.
	Taken time.Time `json:"taken"`
	// Level is the feature level of the cluster, Index the log index of the state.
	Level uint64 `json:"level"`
	Index uint64 `json:"index,string"`
	// Ceiling is above all timestamps issued before the backup, in unix nanoseconds.
	Ceiling uint64 `json:"ceiling,string"`
	// State is encoded as in a snapshot.
	State []byte `json:"state"`
	// Sum is the SHA-256 of the rest in hexadecimal digits.
	Sum string `json:"sum"`
}

// Seal sets the format and the checksum.
func (d *Document) Seal() {
	d.Format, d.Taken = Format, d.Taken.UTC().Truncate(time.Millisecond)
	d.Sum = d.sum()
}

func (d *Document) sum() string {
	h := sha256.New()
	fmt.Fprintf(h, "backup %d\n%s\n%d\n%d\n%d\n%d\n%d\n", d.Format, d.ClusterID, d.Taken.UnixMilli(), d.Level, d.Index, d.Ceiling, len(d.State))
	_, _ = h.Write(d.State) // never fails
	return text(h)
}

func text(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// Encode returns the bytes of a sealed document.
func (d *Document) Encode() []byte { return encode(d) }

func encode(v any) []byte {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err) // the structs have only fields that can be encoded
	}
	return append(b, '\n')
}

// Decode returns the document in b.
func Decode(b []byte) (Document, error) {
	var d Document
	if err := decode(b, &d, "a backup"); err != nil {
		return Document{}, err
	}
	return d, d.check()
}

func (d *Document) check() error {
	if d.Sum != d.sum() {
		return errors.New("the backup is damaged: its checksum does not match")
	}
	return nil
}

// decode decodes JSON of this format without unknown fields.
func decode(b []byte, into any, what string) error {
	var head struct{ Format int }
	if err := json.Unmarshal(b, &head); err != nil {
		return fmt.Errorf("not %s, or damaged or truncated: %w", what, err)
	}
	switch {
	case head.Format < 1:
		return fmt.Errorf("not %s: it has no format number", what)
	case head.Format > Format:
		return fmt.Errorf("%s of format %d; this version reads format %d at most: use the version that wrote it, or a newer one", what, head.Format, Format)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%s is damaged: %w", what, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s is damaged: something follows it", what)
	}
	return nil
}
