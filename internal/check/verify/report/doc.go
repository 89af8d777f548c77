// Package report shows what a run of "isotone verify" has seen: as a page of HTML in one file ([HTML]), as text for a
// terminal ([Summary]), and while the run is under way ([Screen]). All are made of a [verify.Result] alone, which [Read]
// reads from a file.
//
// Names, versions and messages come from a system that is not ours: nothing that they contain gets into the page as
// markup, or into a terminal as a control sequence.
package report
