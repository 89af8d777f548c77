//go:build !unix

package demo

import "os"

// signalsWork: there are signals other than SIGKILL.
const signalsWork = false

// signalStop, signalCont and signalTerm are never sent: see [Options.Validate].
var signalStop, signalCont, signalTerm os.Signal = os.Kill, os.Kill, os.Kill
