package proxy

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// AnnounceMax is the latest version of the PROXY protocol that a [TCPServer] speaks.
const AnnounceMax = 2

// announceSignature begins every header of version 2.
const announceSignature = "\r\n\r\n\x00\r\nQUIT\n"

// appendAnnouncement appends the header by which the PROXY protocol tells a backend who the client
// is, and which address of the proxy it has connected to. Version 1 is a line of text, version 2
// is binary. If only one of the addresses is an IPv4 address, both are sent as IPv6.
//
// Source: The PROXY protocol, versions 1 & 2 (W. Tarreau, HAProxy).
func appendAnnouncement(b []byte, version int, client, local netip.AddrPort) []byte {
	from, to := client.Addr().Unmap().WithZone(""), local.Addr().Unmap().WithZone("")
	v4 := from.Is4() && to.Is4()
	if version == 1 {
		family := "TCP4"
		if !v4 {
			family = "TCP6"
			from, to = netip.AddrFrom16(from.As16()), netip.AddrFrom16(to.As16())
		}
		return fmt.Appendf(b, "PROXY %s %s %s %d %d\r\n", family, from, to, client.Port(), local.Port())
	}
	b = append(b, announceSignature...)
	if v4 {
		b = append(b, 0x21, 0x11, 0, 12) // version 2, PROXY; TCP over IPv4; the length of what follows
		x, y := from.As4(), to.As4()
		b = append(append(b, x[:]...), y[:]...)
	} else {
		b = append(b, 0x21, 0x21, 0, 36) // TCP over IPv6
		x, y := from.As16(), to.As16()
		b = append(append(b, x[:]...), y[:]...)
	}
	b = binary.BigEndian.AppendUint16(b, client.Port())
	return binary.BigEndian.AppendUint16(b, local.Port())
}
