package storage_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/isotone/isotone/internal/host/storage"
)

// Journals that are put together by hand, as the package comment describes the format.

const (
	sectorBytes        = 512
	sectorContentBytes = sectorBytes - 20
)

// appendJournalSector appends a valid sector.
func appendJournalSector(b []byte, salt uint64, number int64, record uint64, length, place uint32, content []byte) []byte {
	raw := make([]byte, sectorBytes)
	binary.BigEndian.PutUint64(raw[4:], record)
	binary.BigEndian.PutUint32(raw[12:], length)
	binary.BigEndian.PutUint32(raw[16:], place)
	copy(raw[20:], content)
	seal(raw, salt, number)
	return append(b, raw...)
}

// seal makes the checksum of a sector valid.
func seal(raw []byte, salt uint64, number int64) {
	covered := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, salt), uint64(number))
	binary.BigEndian.PutUint32(raw, crc32.Checksum(append(covered, raw[4:]...), crc32.MakeTable(crc32.Castagnoli)))
}

// buildJournal returns a journal with valid sectors and whatever records.
func buildJournal(salt uint64, empty int, payloads ...[]byte) []byte {
	var sectors []byte
	for i, payload := range payloads {
		length := uint32(len(payload))
		for place := uint32(0); len(payload) > 0; place++ {
			n := min(len(payload), sectorContentBytes)
			sectors = appendJournalSector(sectors, salt, 1+int64(len(sectors)/sectorBytes), uint64(i+1), length, place, payload[:n])
			payload = payload[n:]
		}
	}
	sectors = append(sectors, make([]byte, empty*sectorBytes)...)
	head := binary.BigEndian.AppendUint32([]byte("isotone\x00"), 1)
	head = binary.BigEndian.AppendUint64(head, salt)
	head = binary.BigEndian.AppendUint64(head, uint64(1+len(sectors)/sectorBytes))
	file := appendJournalSector(nil, 0, 0, 0, uint32(len(head)), 0, head)
	return append(file, sectors...)
}

// journalPayloads returns the complete records of a sound journal.
func journalPayloads(file []byte) (payloads [][]byte) {
	for at := sectorBytes; at < len(file) && binary.BigEndian.Uint64(file[at+4:]) > 0; {
		length := int(binary.BigEndian.Uint32(file[at+12:]))
		var payload []byte
		for len(payload) < length {
			if at == len(file) || binary.BigEndian.Uint64(file[at+4:]) == 0 {
				return payloads
			}
			payload = append(payload, file[at+20:][:min(length-len(payload), sectorContentBytes)]...)
			at += sectorBytes
		}
		payloads = append(payloads, payload)
	}
	return payloads
}

// resealSectors makes the checksums of all sectors that are not empty valid.
func resealSectors(file []byte) {
	salt := binary.BigEndian.Uint64(file[32:])
	seal(file[:sectorBytes], 0, 0)
	for number := int64(1); (number+1)*sectorBytes <= int64(len(file)); number++ {
		if raw := file[number*sectorBytes:][:sectorBytes]; bytes.Count(raw, []byte{0}) < sectorBytes {
			seal(raw, salt, number)
		}
	}
}

// nextJournalRecord returns the record of a write that follows the records of a journal of
// journalSpecimen.
func nextJournalRecord(t *testing.T, last, next storage.Write) []byte {
	t.Helper()
	file, _, _ := journalSpecimen(t, last, next)
	payloads := journalPayloads(file)
	return payloads[len(payloads)-1]
}
