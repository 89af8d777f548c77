package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"

	"github.com/isotone/isotone/internal/core/journal"
)

// A journal begins with a bbolt file of four pages that holds nothing but the format record. So
// a version that knows only FormatBolt says that the file has another format; without it, it
// would call the file damaged, and tell the operator to move it away.

const (
	markerPageBytes = 4096
	markerPages     = 4
	markerBytes     = markerPages * markerPageBytes
)

// marker returns the head of every journal. bbolt has the byte order of the machine; the marker is
// little-endian everywhere, so that a journal is the same on all machines.
func marker() []byte {
	b := make([]byte, markerBytes)
	order, record := binary.LittleEndian, journal.EncodeRecord(journal.BucketMeta, []byte(journal.KeyFormat), journal.EncodeFormat(FormatJournal))
	for id := range uint64(2) {
		page := b[id*markerPageBytes:]
		putPageHeader(page, id, pageMeta, 0)
		meta := page[pageHeaderBytes:]
		order.PutUint32(meta, boltMagic)
		order.PutUint32(meta[4:], boltVersion)
		order.PutUint32(meta[8:], markerPageBytes)
		order.PutUint64(meta[16:], 3) // the root page
		order.PutUint64(meta[32:], 2) // the page of the free list
		order.PutUint64(meta[40:], markerPages)
		order.PutUint64(meta[48:], 2+id) // the transaction; 0 and 1 belong to untouched files
		sum := fnv.New64a()
		sum.Write(meta[:56])
		order.PutUint64(meta[56:], sum.Sum64())
	}
	putPageHeader(b[2*markerPageBytes:], 2, pageFreelist, 0)
	inline := make([]byte, bucketHeaderBytes, 128) // its root page is 0: it is in the value
	inline = append(inline, leafOf(0, 0, []byte(journal.KeyFormat), record)...)
	copy(b[3*markerPageBytes:], leafOf(3, 1, []byte(journal.BucketMeta), inline))
	return b
}

func putPageHeader(page []byte, id uint64, flags, count uint16) {
	binary.LittleEndian.PutUint64(page, id)
	binary.LittleEndian.PutUint16(page[8:], flags)
	binary.LittleEndian.PutUint16(page[10:], count)
}

// leafOf returns the used part of a leaf page with one element.
func leafOf(id uint64, flags uint32, key, value []byte) []byte {
	page, order := make([]byte, pageHeaderBytes+pageElementBytes), binary.LittleEndian
	putPageHeader(page, id, pageLeaf, 1)
	element := page[pageHeaderBytes:]
	order.PutUint32(element, flags)
	order.PutUint32(element[4:], pageElementBytes) // from here to the key
	order.PutUint32(element[8:], uint32(len(key)))
	order.PutUint32(element[12:], uint32(len(value)))
	return append(append(page, key...), value...)
}

// isJournal reports whether a file has the head of a journal.
func isJournal(file io.ReaderAt) (bool, error) {
	b := make([]byte, markerBytes)
	n, err := file.ReadAt(b, 0)
	switch {
	case n == len(b):
		return bytes.Equal(b, marker()), nil
	case errors.Is(err, io.EOF):
		return false, nil
	}
	return false, fmt.Errorf("storage: %w", err)
}
