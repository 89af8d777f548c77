package wallclock

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// code is what the functions of the vDSO become: an offset in nanoseconds, and code that may stand at any address. It keeps all
// registers that the ABI demands, and needs 32 bytes of stack at most; Go calls clock_gettime where little is left.
var code = []byte{
	0, 0, 0, 0, 0, 0, 0, 0, // 00 offset: .quad 0
	// clock_gettime:
	0xb8, 0xe4, 0x00, 0x00, 0x00, // 08 mov $228, %eax
	0x0f, 0x05, // 0d syscall
	0x85, 0xc0, // 0f test %eax, %eax
	0x75, 0x38, // 11 jnz done
	0x83, 0xff, 0x0b, // 13 cmp $11, %edi
	0x77, 0x33, // 16 ja done
	0xb9, 0x21, 0x08, 0x00, 0x00, // 18 mov $(1<<0 | 1<<5 | 1<<11), %ecx: CLOCK_REALTIME, CLOCK_REALTIME_COARSE, CLOCK_TAI
	0x0f, 0xa3, 0xf9, // 1d bt %edi, %ecx
	0x73, 0x29, // 20 jnc done
	0x48, 0x8b, 0x05, 0xd7, 0xff, 0xff, 0xff, // 22 mov offset(%rip), %rax
	0xb9, 0x00, 0xca, 0x9a, 0x3b, // 29 mov $1000000000, %ecx
	// add: to the time at rsi, seconds and a fraction, comes rax, in units of which a second has rcx.
	0x48, 0x03, 0x46, 0x08, // 2e add 8(%rsi), %rax
	0x48, 0x99, // 32 cqo
	0x48, 0xf7, 0xf9, // 34 idiv %rcx
	0x48, 0x85, 0xd2, // 37 test %rdx, %rdx
	0x79, 0x06, // 3a jns 1f
	0x48, 0x01, 0xca, // 3c add %rcx, %rdx
	0x48, 0xff, 0xc8, // 3f dec %rax
	0x48, 0x01, 0x06, // 42 1: add %rax, (%rsi)
	0x48, 0x89, 0x56, 0x08, // 45 mov %rdx, 8(%rsi)
	0x31, 0xc0, // 49 xor %eax, %eax
	0xc3, // 4b done: ret
	// gettimeofday:
	0xb8, 0x60, 0x00, 0x00, 0x00, // 4c mov $96, %eax
	0x0f, 0x05, // 51 syscall
	0x85, 0xc0, // 53 test %eax, %eax
	0x75, 0xf4, // 55 jnz done
	0x48, 0x89, 0xfe, // 57 mov %rdi, %rsi
	0x48, 0x85, 0xf6, // 5a test %rsi, %rsi
	0x74, 0xec, // 5d jz done
	0x48, 0x8b, 0x05, 0x9a, 0xff, 0xff, 0xff, // 5f mov offset(%rip), %rax
	0x48, 0x99, // 66 cqo
	0xb9, 0xe8, 0x03, 0x00, 0x00, // 68 mov $1000, %ecx
	0x48, 0xf7, 0xf9, // 6d idiv %rcx
	0xb9, 0x40, 0x42, 0x0f, 0x00, // 70 mov $1000000, %ecx
	0xeb, 0xb7, // 75 jmp add
	// time:
	0x48, 0x83, 0xec, 0x18, // 77 sub $24, %rsp
	0x48, 0x89, 0x7c, 0x24, 0x10, // 7b mov %rdi, 16(%rsp)
	0x48, 0x89, 0xe6, // 80 mov %rsp, %rsi
	0xbf, 0x05, 0x00, 0x00, 0x00, // 83 mov $5, %edi: CLOCK_REALTIME_COARSE
	0xe8, 0x7b, 0xff, 0xff, 0xff, // 88 call clock_gettime
	0x48, 0x8b, 0x04, 0x24, // 8d mov (%rsp), %rax
	0x48, 0x8b, 0x7c, 0x24, 0x10, // 91 mov 16(%rsp), %rdi
	0x48, 0x83, 0xc4, 0x18, // 96 add $24, %rsp
	0x48, 0x85, 0xff, // 9a test %rdi, %rdi
	0x74, 0x03, // 9d jz 2f
	0x48, 0x89, 0x07, // 9f mov %rax, (%rdi)
	0xc3, // a2 2: ret
}

// functions are those of the vDSO that read the wall clock, with what they become. The vDSO has other names for the same code.
var functions = map[string]int{"__vdso_clock_gettime": 0x08, "__vdso_gettimeofday": 0x4c, "__vdso_time": 0x77}

const (
	jumpSize = 5 // a jump with its distance, as it is written at the beginning of a function
	align    = 16
)

// vdso is the code that this kernel maps into 64-bit processes, the same into all.
type vdso struct {
	image []byte
	jumps map[int]int // to where in code the functions at these offsets jump
	code  int         // where the code comes
}

// parseVDSO finds in an image what is to be changed. The code comes after all that is loaded, where the names and headers of
// sections are, and nothing: only debuggers read these.
func parseVDSO(image []byte) (*vdso, error) {
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, fmt.Errorf("the vDSO cannot be read: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("the vDSO cannot be read: %w", err)
	}
	v := &vdso{image: image, jumps: map[int]int{}}
	for _, s := range symbols {
		if to, ok := functions[s.Name]; ok && s.Size >= jumpSize && s.Value+jumpSize <= uint64(len(image)) {
			v.jumps[int(s.Value)] = to
		}
	}
	for _, p := range file.Progs {
		if end := p.Off + p.Memsz; p.Type == elf.PT_LOAD && end <= uint64(len(image)) {
			v.code = max(v.code, (int(end)+align-1)/align*align)
		}
	}
	if len(v.jumps) != len(functions) || v.code == 0 || v.code+len(code) > len(image) {
		return nil, errors.New("the vDSO has another form than is known")
	}
	return v, nil
}

// patch changes an image such that its functions add an offset.
func (v *vdso) patch(image []byte, offset time.Duration) {
	copy(image[v.code:], code)
	binary.LittleEndian.PutUint64(image[v.code:], uint64(offset))
	for at, to := range v.jumps {
		const jump = 0xe9
		image[at] = jump
		binary.LittleEndian.PutUint32(image[at+1:], uint32(v.code+to-at-jumpSize))
	}
}

// within reports whether an offset is that of an instruction that begins within what patch changes. At the first instruction of a
// function a thread may well be: then it executes the new one. Threads elsewhere in a function end it as they have begun.
// One that was there when a signal came, and executes its handler, is not seen.
func (v *vdso) within(at int) bool {
	for from := range v.jumps {
		if at > from && at < from+jumpSize {
			return true
		}
	}
	return false
}

// own is the vDSO of this process, whose clock nobody has set.
var own = sync.OnceValues(func() (*vdso, error) {
	image, _, err := readVDSO(os.Getpid())
	if err == nil && image == nil {
		err = errors.New("there is no vDSO")
	}
	if err != nil {
		return nil, err
	}
	return parseVDSO(image)
})
