// Package survey owns what a cluster says of itself: the [State] document that a node encodes once a second, the [Survey] that asks all
// members for it, and the [Report] of what they say together, with a table, a summary and warnings for people.
//
// The dashboard shows documents, "isotone status" and "isotone doctor" reports. It does not depend on the node or its protocols.
package survey
