package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/isotone/isotone/internal/core/mutant"
)

// A journal is a row of sectors. A sector has a header and a part of one record, or is empty, which
// means that all its bytes are 0. All numbers are big-endian. The header:
//
//	0   CRC32C of the salt of the file, the number of the sector, and the rest of the sector
//	4   number of the record, from 1 on without gaps
//	12  length of the record in bytes
//	16  place of this sector in the record, from 0 on
//	20  content; what the last sector of a record has beyond the end is 0
//
// Sector 0 is the head of the file. It has salt 0, record 0, and as its content:
//
//	0   "isotone", and a byte 0
//	8   format of the file, 4 bytes
//	12  salt of the file, 8 bytes
//	20  number of sectors of the file, 8 bytes
//
// Its header, the name and the format stay as they are in later formats, so that every version can
// say which format a file has.

const (
	// SectorBytes is what every disk writes whole or not at all.
	SectorBytes        = 512
	sectorHeaderBytes  = 20
	sectorContentBytes = SectorBytes - sectorHeaderBytes
	// journalRecordBytesMax bounds one record, which may hold the whole state: a snapshot, and a log
	// of some hundred kilobytes.
	journalRecordBytesMax = 1 << 30
	// journalBytesMax bounds the file. It has room for the largest record.
	journalBytesMax = 2 << 30
)

// sector is the header of a sector and its content.
type sector struct {
	record  uint64
	length  uint32
	place   uint32
	content []byte
}

// sectorsFor returns how many sectors a record of the given length has.
func sectorsFor(length int) int64 {
	return (int64(length) + sectorContentBytes - 1) / sectorContentBytes
}

// appendSectors appends the sectors of one record, the first of which has the given number.
func appendSectors(b []byte, salt uint64, number int64, record uint64, payload []byte) []byte {
	length := uint32(len(payload))
	for place := uint32(0); len(payload) > 0; place++ {
		n := min(len(payload), sectorContentBytes)
		b = appendSector(b, salt, number+int64(place), sector{record, length, place, payload[:n]})
		payload = payload[n:]
	}
	return b
}

func appendSector(b []byte, salt uint64, number int64, s sector) []byte {
	at := len(b)
	b = append(b, make([]byte, SectorBytes)...)
	raw := b[at:]
	binary.BigEndian.PutUint64(raw[4:], s.record)
	binary.BigEndian.PutUint32(raw[12:], s.length)
	binary.BigEndian.PutUint32(raw[16:], s.place)
	copy(raw[sectorHeaderBytes:], s.content)
	binary.BigEndian.PutUint32(raw, sectorSum(salt, number, raw))
	return b
}

// sectorSum covers the place of a sector as well as its content.
func sectorSum(salt uint64, number int64, raw []byte) uint32 {
	var head [16]byte
	binary.BigEndian.PutUint64(head[:], salt)
	binary.BigEndian.PutUint64(head[8:], uint64(number))
	return crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, raw[4:])
}

// decodeSector returns a sector, which shares memory with raw, or ok = false if it is empty.
func decodeSector(raw []byte, salt uint64, number int64) (s sector, ok bool, err error) {
	if isZero(raw) {
		return sector{}, false, nil
	}
	if binary.BigEndian.Uint32(raw) != sectorSum(salt, number, raw) && !mutant.On(mutant.AcceptBadChecksum) {
		return sector{}, false, ErrChecksum
	}
	s = sector{
		record: binary.BigEndian.Uint64(raw[4:]), length: binary.BigEndian.Uint32(raw[12:]),
		place: binary.BigEndian.Uint32(raw[16:]), content: raw[sectorHeaderBytes:],
	}
	rest := int64(s.length) - int64(s.place)*sectorContentBytes
	switch {
	case s.record == 0 || s.length > journalRecordBytesMax || rest <= 0:
		return sector{}, false, errors.New("its header makes no sense")
	case rest < sectorContentBytes && !isZero(s.content[rest:]):
		return sector{}, false, errors.New("it goes on behind its end")
	}
	s.content = s.content[:min(rest, sectorContentBytes)]
	return s, true, nil
}

func isZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// headName begins the content of the head sector.
const headName = "isotone\x00"

// journalHead returns the head sector of a file.
func journalHead(salt uint64, sectors int64) []byte {
	content := binary.BigEndian.AppendUint32([]byte(headName), Format)
	content = appendUint64s(content, salt, uint64(sectors))
	return appendSector(nil, 0, 0, sector{length: uint32(len(content)), content: content})
}

// boltMagic is in the head of the data files of versions before the first release, which were those of
// bbolt or began like them: a number of 4 bytes in the order of the machine, behind 16 bytes.
const boltMagic = 0xED0CDAED

func isBolt(raw []byte) bool {
	b := raw[16:20]
	return binary.LittleEndian.Uint32(b) == boltMagic || binary.BigEndian.Uint32(b) == boltMagic
}

// decodeHead is the reverse of journalHead. It returns a [FormatError] for the head of another format.
func decodeHead(raw []byte) (salt uint64, sectors int64, err error) {
	content := raw[sectorHeaderBytes:]
	if isBolt(raw) {
		return 0, 0, &FormatError{Reads: Format}
	}
	if binary.BigEndian.Uint32(raw) != sectorSum(0, 0, raw) || string(content[:len(headName)]) != headName {
		return 0, 0, corruptSector(0, "%v", ErrChecksum)
	}
	content = content[len(headName):]
	if format := binary.BigEndian.Uint32(content); format != Format {
		return 0, 0, &FormatError{Have: format, Reads: Format}
	}
	var count uint64
	readUint64s(content[formatBytes:], &salt, &count)
	switch {
	case string(raw) != string(journalHead(salt, int64(count))):
		return 0, 0, corruptSector(0, "it is not as this program writes it")
	case count < 2 || count > journalBytesMax/SectorBytes:
		return 0, 0, corruptSector(0, "it counts %d sectors", count)
	}
	return salt, int64(count), nil
}

// sectorReader reads sectors, mostly in order, some at a time.
type sectorReader struct {
	journal *Journal
	from    int64  // number of the first sector in buffer
	buffer  []byte // whole sectors
}

// sectorsAtOnce is how many sectors are read at once, 64 KiB.
const sectorsAtOnce = 128

// at returns a sector of the file; see decodeSector. It is valid until the next call.
func (r *sectorReader) at(number int64) (sector, bool, error) {
	if i := number - r.from; i < 0 || i >= int64(len(r.buffer)/SectorBytes) {
		n := min(r.journal.sectors-number, sectorsAtOnce)
		if int64(cap(r.buffer)) < n*SectorBytes {
			r.buffer = make([]byte, 0, n*SectorBytes)
		}
		r.from, r.buffer = number, r.buffer[:n*SectorBytes]
		if err := ReadAt(r.journal.file, r.buffer, r.journal.at(number)); err != nil {
			r.buffer = r.buffer[:0]
			return sector{}, false, err
		}
	}
	raw := r.buffer[(number-r.from)*SectorBytes:][:SectorBytes]
	s, ok, err := decodeSector(raw, r.journal.salt, number)
	if err != nil {
		return sector{}, false, corruptSector(number, "%v", err)
	}
	return s, ok, nil
}

func corruptSector(number int64, format string, args ...any) *CorruptError {
	return Corrupt(fmt.Sprintf("sector %d", number), format, args...)
}
