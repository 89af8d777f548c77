//go:build !unix

package child

import "os"

// Stop and Cont are the signals that freeze a process and have it go on; nil where there are none.
var Stop, Cont os.Signal
