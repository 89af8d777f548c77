//go:build !unix

package demo

import "os"

// signalsWork: there are signals other than SIGKILL.
const signalsWork = false

// signalStop and signalCont are never sent: see [Options.Validate].
var signalStop, signalCont os.Signal = os.Kill, os.Kill
