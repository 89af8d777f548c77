package timeline

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	// NameMax is the longest name of a timeline or a group, in bytes.
	NameMax = 64
	// SlotGroups is the number of groups of hash slots, named h000 to h255. They exist from the start.
	SlotGroups = 256
	// Slots is the number of hash slots of Redis Cluster.
	Slots = 1 << 14
)

// CheckName returns an error if name is not that of a timeline or group: 1 to NameMax of the characters A-Z a-z 0-9 . _ / and -.
func CheckName(name string) error {
	if name == "" || len(name) > NameMax {
		return fmt.Errorf("a name of %d bytes: want 1 to %d", len(name), NameMax)
	}
	for i := range len(name) {
		if c := name[i]; !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("._/-", c) >= 0) {
			return fmt.Errorf("%q: a name has letters, digits, and . _ / - only", name)
		}
	}
	return nil
}

// GroupOf returns the group in which a timeline is unless it was put into another one: that of its hash slot, so that a client of Redis
// Cluster which knows the owners of slots finds it. Names have no braces, hence no hash tags.
func GroupOf(name string) string { return slotGroup(int(Slot(name)) / (Slots / SlotGroups)) }

func slotGroup(n int) string { return fmt.Sprintf("h%03d", n) }

func isSlotGroup(name string) bool {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "h"))
	return err == nil && n >= 0 && n < SlotGroups && slotGroup(n) == name
}

// Slot returns the hash slot of a name, as the specification of Redis Cluster has it: CRC-16 (XMODEM) modulo 16,384.
func Slot[T string | []byte](name T) uint16 {
	crc := uint16(0)
	for i := range len(name) {
		crc ^= uint16(name[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % Slots
}
