package node

import (
	"reflect"
	"testing"
)

// TestCore_NothingOfAStepIsInTheNext: an input that is not emptied grows for ever, or asks twice.
func TestCore_NothingOfAStepIsInTheNext(t *testing.T) {
	c := &core{}
	in := reflect.ValueOf(&c.next).Elem()
	for i := range in.NumField() {
		switch f := in.Field(i); f.Kind() {
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		}
	}
	c.reset()
	for i := range in.NumField() {
		switch f := in.Field(i); {
		case f.Kind() == reflect.Slice && f.Len() > 0, f.Kind() == reflect.Pointer && !f.IsNil():
			t.Errorf("%s is kept", in.Type().Field(i).Name)
		}
	}
}
