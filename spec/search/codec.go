package search

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"unsafe"

	"github.com/isotone/isotone/spec"
)

// A state is its encoding: equal states have the same one. The codec knows no field by what it means, so that a field which the specification gains
// tells states apart from then on. These are exceptions: what the next step sets before it reads it, and what only tells how much has happened.
var unread = map[string]bool{
	"spec.Spec.number": true, "spec.Spec.event": true, "spec.Spec.violation": true, "spec.Spec.Ignored": true, "spec.confirmations.recent": true,
	"spec.node.termBefore": true, "spec.node.configBefore": true, "spec.node.leadingBefore": true, "spec.node.configAtBefore": true, "spec.node.fenceBefore": true,
	"spec.node.configAt": true, "spec.node.fencedAt": true, // in no answer but one for a timeline
}

// stepOf are the fields that number steps of a node. Only their order counts, so they are encoded by rank.
var stepOf = map[string]bool{"spec.request.step": true, "spec.round.step": true}

// kind is how the values of a struct are encoded: which of its fields.
type kind struct {
	fields []field
}

type field struct {
	index  int
	isStep bool // a step of a node, by rank
	isNow  bool // the number of steps of a node
	isLost bool // a map that is not encoded: it is empty afterwards
}

var kinds sync.Map // by reflect.Type

// kindOf returns how a struct is encoded.
func kindOf(t reflect.Type) *kind {
	if k, ok := kinds.Load(t); ok {
		return k.(*kind)
	}
	k := &kind{}
	for i := range t.NumField() {
		name := t.String() + "." + t.Field(i).Name
		if isMap := t.Field(i).Type.Kind() == reflect.Map; isMap || !unread[name] {
			k.fields = append(k.fields, field{i, stepOf[name], name == "spec.node.steps", unread[name]})
		}
	}
	kinds.Store(t, k)
	return k
}

var nodeType = func() reflect.Type {
	f, _ := reflect.TypeFor[spec.Spec]().FieldByName("nodes")
	return f.Type.Elem().Elem()
}()

// encoder appends values. steps are those of the node under way, in order.
type encoder struct {
	b     []byte
	steps []uint64
}

func encode(v reflect.Value) []byte {
	e := encoder{b: make([]byte, 0, 1024)}
	e.value(v)
	return e.b
}

func (e *encoder) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		e.uint(map[bool]uint64{true: 1}[v.Bool()])
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		e.b = binary.AppendVarint(e.b, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		e.uint(v.Uint())
	case reflect.String:
		e.uint(uint64(v.Len()))
		e.b = append(e.b, v.String()...)
	case reflect.Pointer:
		if v.IsNil() {
			e.uint(0)
			return
		}
		e.uint(1)
		e.value(v.Elem())
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice {
			e.uint(uint64(v.Len()))
		}
		for i := range v.Len() {
			e.value(v.Index(i))
		}
	case reflect.Map:
		e.mapping(v)
	case reflect.Struct:
		e.fields(v)
	default:
		panic(fmt.Sprintf("a %v is in the state", v.Type()))
	}
}

func (e *encoder) uint(n uint64) { e.b = binary.AppendUvarint(e.b, n) }

// mapping appends the entries of a map in the order of their keys.
func (e *encoder) mapping(v reflect.Value) {
	e.uint(uint64(v.Len()))
	type entry struct {
		key   []byte
		value reflect.Value
	}
	list := make([]entry, 0, v.Len())
	for iter := v.MapRange(); iter.Next(); {
		list = append(list, entry{encode(iter.Key()), iter.Value()})
	}
	slices.SortFunc(list, func(a, b entry) int { return cmp.Compare(string(a.key), string(b.key)) })
	for _, one := range list {
		e.b = append(e.b, one.key...)
		e.value(one.value)
	}
}

func (e *encoder) fields(v reflect.Value) {
	if v.Type() == nodeType {
		e.steps = e.steps[:0]
		collectSteps(v, &e.steps)
		slices.Sort(e.steps)
		e.steps = slices.Compact(e.steps)
	}
	for _, f := range kindOf(v.Type()).fields {
		switch {
		case f.isLost:
		case f.isNow:
			e.uint(uint64(len(e.steps)))
		case f.isStep:
			rank, _ := slices.BinarySearch(e.steps, v.Field(f.index).Uint())
			e.uint(uint64(rank))
		default:
			e.value(v.Field(f.index))
		}
	}
}

// collectSteps appends the numbers of steps that are in a value.
func collectSteps(v reflect.Value, to *[]uint64) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			collectSteps(v.Elem(), to)
		}
	case reflect.Map:
		for iter := v.MapRange(); iter.Next(); {
			collectSteps(iter.Value(), to)
		}
	case reflect.Struct:
		for _, f := range kindOf(v.Type()).fields {
			if f.isStep {
				*to = append(*to, v.Field(f.index).Uint())
			} else if k := v.Field(f.index).Kind(); k == reflect.Map || k == reflect.Pointer || k == reflect.Struct {
				collectSteps(v.Field(f.index), to)
			}
		}
	}
}

// decoder takes values off what an encoder has appended.
type decoder struct{ b []byte }

// decode sets v, which is addressable.
func (d *decoder) decode(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(d.uint() == 1)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, size := binary.Varint(d.b)
		d.b = d.b[size:]
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(d.uint())
	case reflect.String:
		n := d.uint()
		v.SetString(string(d.b[:n]))
		d.b = d.b[n:]
	case reflect.Pointer:
		if d.uint() == 1 {
			v.Set(reflect.New(v.Type().Elem()))
			d.decode(v.Elem())
		}
	case reflect.Slice:
		n := int(d.uint())
		if n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range n {
			d.decode(v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			d.decode(v.Index(i))
		}
	case reflect.Map:
		n := d.uint()
		v.Set(reflect.MakeMapWithSize(v.Type(), int(n)))
		for range n {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			d.decode(key)
			d.decode(value)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for _, f := range kindOf(v.Type()).fields {
			to := v.Field(f.index)
			if !to.CanSet() { // not exported
				to = reflect.NewAt(to.Type(), unsafe.Pointer(to.UnsafeAddr())).Elem()
			}
			if f.isLost {
				to.Set(reflect.MakeMap(to.Type()))
				continue
			}
			d.decode(to)
		}
	}
}

func (d *decoder) uint() uint64 {
	n, size := binary.Uvarint(d.b)
	d.b = d.b[size:]
	return n
}
