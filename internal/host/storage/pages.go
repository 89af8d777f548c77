package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/bits"

	"github.com/isotone/isotone/internal/core/journal"
)

// This file checks the pages of a bbolt file by reading them, before bbolt maps
// them into memory. bbolt has a check of its own (Tx.Check), but that one comes
// too late and is not safe on a damaged file: opening the file already trusts
// its pages; the check runs on a goroutine where a memory fault ends the
// process; a branch that points back to its parent makes it recurse until the
// stack is full. Above all, where one of the two meta pages is invalid bbolt
// uses the other one, which is the state before the last Save: a node that
// voted in that Save would vote again.
//
// So both meta pages must be valid here. A crash cannot violate that: the 80 significant bytes
// of a meta page lie in one disk sector.
//
// The layout, in the byte order of the machine: pages 0 and 1 are meta pages; the newer one
// names the root page, the page of the free list and the number of pages. Every page begins
// with a header: ID (8 bytes), flags (2), count (2), overflow (4, how many further pages belong
// to it). In branch and leaf pages, count elements of 16 bytes follow, which point to keys and
// values behind them.

const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2

	pageHeaderBytes   = 16
	pageElementBytes  = 16
	pageMetaBytes     = 64
	bucketHeaderBytes = 16

	pageBranch   = 0x01
	pageLeaf     = 0x02
	pageMeta     = 0x04
	pageFreelist = 0x10

	pageBytesMin = 1 << 10
	pageBytesMax = 1 << 16
	// treeDepthMax is far above what a tree of 2^64 entries would need.
	treeDepthMax = 64
	// bulkFreelist as a count means that the real one does not fit in 16 bits.
	bulkFreelist = 0xFFFF
)

// pageUse is what a page was found to be: nothing yet, part of the tree or of the free list's
// own pages, or free.
type pageUse byte

const (
	pageUnseen pageUse = iota
	pageUsed
	pageFree
)

// boltMeta is the content of a meta page.
type boltMeta struct {
	pageBytes             int64
	root, freelist, pages uint64
	transaction           uint64
}

// pageCheck is one walk over a file.
type pageCheck struct {
	file io.ReaderAt
	meta boltMeta
	use  []pageUse // one for each page
}

// checkPages reads all pages in use of a bbolt file of the given size in bytes.
// It returns a [CorruptError] if bbolt could not use them safely, and otherwise
// whether the file is untouched, which means that no transaction was ever
// committed to it. Errors of file itself are returned as they are.
func checkPages(file io.ReaderAt, size int64) (untouched bool, err error) {
	c := &pageCheck{file: file}
	if c.meta, err = readMetas(file); err != nil {
		return false, err
	}
	if have := uint64(size / c.meta.pageBytes); have < c.meta.pages {
		return false, journal.Corrupt("the file", "it has %d pages and should have at least %d", have, c.meta.pages)
	}
	c.use = make([]pageUse, c.meta.pages)
	if err := c.walk(c.meta.root, span{}, treeDepthMax, true); err != nil {
		return false, err
	}
	if err := c.freelist(); err != nil {
		return false, err
	}
	for id := uint64(2); id < c.meta.pages; id++ {
		if c.use[id] == pageUnseen {
			return false, corruptPage(id, "it is neither in use nor free")
		}
	}
	return c.meta.transaction == 1, nil
}

func corruptPage(id uint64, format string, args ...any) *CorruptError {
	return journal.Corrupt(fmt.Sprintf("page %d", id), format, args...)
}

// readMetas returns the newer of the two meta pages.
func readMetas(file io.ReaderAt) (boltMeta, error) {
	meta0, err := readMeta(file, 0, 0)
	if err != nil {
		return boltMeta{}, err
	}
	meta1, err := readMeta(file, 1, meta0.pageBytes)
	if err != nil {
		return boltMeta{}, err
	}
	// Transactions write the two pages in turn, so they are always neighbours.
	newer, older := meta0, meta1
	if meta1.transaction > meta0.transaction {
		newer, older = meta1, meta0
	}
	if newer.transaction-older.transaction != 1 || newer.pageBytes != older.pageBytes {
		return boltMeta{}, corruptPage(0, "it does not match page 1")
	}
	return newer, nil
}

func readMeta(file io.ReaderAt, id uint64, offset int64) (boltMeta, error) {
	b := make([]byte, pageHeaderBytes+pageMetaBytes)
	if err := journal.ReadAt(file, b, offset); err != nil {
		return boltMeta{}, err
	}
	order, m := binary.NativeEndian, b[pageHeaderBytes:]
	sum := fnv.New64a()
	sum.Write(m[:56])
	meta := boltMeta{
		pageBytes:   int64(order.Uint32(m[8:])),
		root:        order.Uint64(m[16:]),
		freelist:    order.Uint64(m[32:]),
		pages:       order.Uint64(m[40:]),
		transaction: order.Uint64(m[48:]),
	}
	switch {
	case order.Uint32(m) != boltMagic:
		return boltMeta{}, corruptPage(id, "it is not the head of a bbolt file")
	case order.Uint32(m[4:]) != boltVersion:
		return boltMeta{}, corruptPage(id, "it has bbolt version %d, not %d", order.Uint32(m[4:]), boltVersion)
	case order.Uint64(m[56:]) != sum.Sum64():
		return boltMeta{}, corruptPage(id, "%v", journal.ErrChecksum)
	case order.Uint64(b) != id || order.Uint16(b[8:]) != pageMeta || meta.transaction%2 != id:
		return boltMeta{}, corruptPage(id, "it is not the meta page that belongs here")
	case meta.pageBytes < pageBytesMin || meta.pageBytes > pageBytesMax || bits.OnesCount64(uint64(meta.pageBytes)) != 1:
		return boltMeta{}, corruptPage(id, "it has the page size %d", meta.pageBytes)
	}
	return meta, nil
}

// take reads the page with the given ID and all its overflow, and marks them as used. Every
// page may be taken once.
func (c *pageCheck) take(id uint64) ([]byte, error) {
	if id < 2 || id >= c.meta.pages {
		return nil, corruptPage(id, "there is no such page")
	}
	head := make([]byte, pageHeaderBytes)
	if err := journal.ReadAt(c.file, head, int64(id)*c.meta.pageBytes); err != nil {
		return nil, err
	}
	if have := binary.NativeEndian.Uint64(head); have != id {
		return nil, corruptPage(id, "its header has the page ID %d", have)
	}
	overflow := uint64(binary.NativeEndian.Uint32(head[12:]))
	if id+overflow >= c.meta.pages {
		return nil, corruptPage(id, "it goes on beyond the last page")
	}
	for i := id; i <= id+overflow; i++ {
		if err := c.mark(i, pageUsed); err != nil {
			return nil, err
		}
	}
	page := make([]byte, int64(overflow+1)*c.meta.pageBytes)
	return page, journal.ReadAt(c.file, page, int64(id)*c.meta.pageBytes)
}

// mark notes the use of a page, of which there may be only one.
func (c *pageCheck) mark(id uint64, use pageUse) error {
	if c.use[id] != pageUnseen {
		return corruptPage(id, "it is in use twice, or in use and free")
	}
	c.use[id] = use
	return nil
}

// span is a range of keys, from included to excluded; nil is no bound.
type span struct{ from, to []byte }

func (s span) holds(key []byte) bool {
	return bytes.Compare(key, s.from) >= 0 && (s.to == nil || bytes.Compare(key, s.to) < 0)
}

// walk checks the tree under one page. The root tree holds buckets only, and
// the trees of those hold none.
func (c *pageCheck) walk(id uint64, within span, depth int, root bool) error {
	if depth == 0 {
		return corruptPage(id, "it lies deeper than any tree can be")
	}
	page, err := c.take(id)
	if err != nil {
		return err
	}
	flags := pageFlags(page)
	elements, err := pageElements(page)
	if err != nil {
		return corruptPage(id, "%v", err)
	}
	if flags == pageBranch && len(elements) == 0 {
		return corruptPage(id, "it is a branch without children")
	}
	for i, e := range elements {
		if !within.holds(e.key) {
			return corruptPage(id, "key %d lies outside the range of the page", i)
		}
		switch {
		case flags == pageBranch:
			below := span{e.key, within.to}
			if i+1 < len(elements) {
				below.to = elements[i+1].key
			}
			err = c.walk(e.child, below, depth-1, root)
		case root != e.bucket:
			err = corruptPage(id, "key %d is a bucket or a record in the wrong place", i)
		case root:
			err = c.bucket(id, e.value, depth-1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket checks a bucket, which has either a tree of its own or, while it is
// small, a leaf page inside the value.
func (c *pageCheck) bucket(id uint64, value []byte, depth int) error {
	if len(value) < bucketHeaderBytes {
		return corruptPage(id, "it has a bucket of %d bytes", len(value))
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return c.walk(root, span{}, depth, false)
	}
	page := value[bucketHeaderBytes:]
	if len(page) < pageHeaderBytes || pageFlags(page) != pageLeaf {
		return corruptPage(id, "it has an inline bucket that is no leaf page")
	}
	elements, err := pageElements(page)
	if err != nil {
		return corruptPage(id, "inline bucket: %v", err)
	}
	for _, e := range elements {
		if e.bucket {
			return corruptPage(id, "it has a bucket inside an inline bucket")
		}
	}
	return nil
}

// freelist checks the page that lists the free ones.
func (c *pageCheck) freelist() error {
	id := c.meta.freelist
	page, err := c.take(id)
	if err != nil {
		return err
	}
	if pageFlags(page) != pageFreelist {
		return corruptPage(id, "it is not a free list")
	}
	count, ids := uint64(binary.NativeEndian.Uint16(page[10:])), page[pageHeaderBytes:]
	if count == bulkFreelist {
		count, ids = binary.NativeEndian.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return corruptPage(id, "it lists more pages than fit into it")
	}
	for i := range count {
		free := binary.NativeEndian.Uint64(ids[8*i:])
		if free < 2 || free >= c.meta.pages {
			return corruptPage(id, "it lists page %d, which does not exist", free)
		}
		if err := c.mark(free, pageFree); err != nil {
			return err
		}
	}
	return nil
}

// pageElement is one element of a branch (key, child) or leaf page (key, value).
type pageElement struct {
	key, value []byte
	child      uint64
	bucket     bool
}

func pageFlags(page []byte) uint16 { return binary.NativeEndian.Uint16(page[8:]) }

// pageElements decodes the elements of a page, which must be a branch or a leaf.
// All of them lie within the page, in ascending order.
func pageElements(page []byte) ([]pageElement, error) {
	if flags := pageFlags(page); flags != pageBranch && flags != pageLeaf {
		return nil, fmt.Errorf("it has the type %#x", flags)
	}
	count := int(binary.NativeEndian.Uint16(page[10:]))
	body := uint64(pageHeaderBytes + count*pageElementBytes)
	if body > uint64(len(page)) {
		return nil, errors.New("it has more elements than fit into it")
	}
	elements := make([]pageElement, count)
	for i := range elements {
		e, err := decodePageElement(page, pageHeaderBytes+i*pageElementBytes, body)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		if i > 0 && bytes.Compare(elements[i-1].key, e.key) >= 0 {
			return nil, fmt.Errorf("element %d is out of order", i)
		}
		elements[i] = e
	}
	return elements, nil
}

// decodePageElement decodes the element at offset. Keys and values lie at body
// or behind it.
func decodePageElement(page []byte, offset int, body uint64) (e pageElement, err error) {
	order, b := binary.NativeEndian, page[offset:]
	var flags, position, keyBytes, valueBytes uint32
	if pageFlags(page) == pageBranch {
		position, keyBytes, e.child = order.Uint32(b), order.Uint32(b[4:]), order.Uint64(b[8:])
	} else {
		flags, position = order.Uint32(b), order.Uint32(b[4:])
		keyBytes, valueBytes = order.Uint32(b[8:]), order.Uint32(b[12:])
	}
	start := uint64(offset) + uint64(position)
	middle := start + uint64(keyBytes)
	end := middle + uint64(valueBytes)
	if start < body || end > uint64(len(page)) || keyBytes == 0 || flags > 1 {
		return e, errors.New("it points outside the page")
	}
	e.key, e.value, e.bucket = page[start:middle], page[middle:end], flags == 1
	return e, nil
}
