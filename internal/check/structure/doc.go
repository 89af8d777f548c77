// Package structure has the tests of the architecture: which packages may import which, what the
// deterministic zone may not use, how large a file or a function may be, and the public API.
package structure
