package wire

import (
	"math"
	"strconv"
	"time"
)

func (d *Decoder) kvs(id typeID) ([]KV, error) {
	def := d.types[id]
	if def == nil || def.shape != shapeSlice {
		return nil, errType
	}
	n, err := d.in.elementCount()
	if err != nil {
		return nil, err
	}
	out := make([]KV, 0, min(n, 1+len(d.in.b)/16)) // a shorter element has no key
	for ; n > 0; n-- {
		out = append(out, KV{})
		if err := d.structure(def.elem, &out[len(out)-1], kvSetter); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (d *Decoder) texts(id typeID) ([]string, error) {
	def := d.types[id]
	if def == nil || def.shape != shapeSlice || def.elem != idString {
		return nil, errType
	}
	n, err := d.in.elementCount()
	var out []string
	for ; err == nil && n > 0; n-- {
		var s string
		if s, err = d.decodeText(idString); err == nil {
			out = append(out, s)
		}
	}
	return out, err
}

func (d *Decoder) decodeText(id typeID) (string, error) {
	if id != idString {
		return "", errType
	}
	b, err := d.in.bytes()
	return string(b), err
}

func syncerType(d *Decoder, id typeID) (SyncerType, error) {
	s, err := d.decodeText(id)
	return SyncerType(s), err
}

func (d *Decoder) bytes(id typeID) ([]byte, error) {
	if id != idBytes {
		return nil, errType
	}
	b, err := d.in.bytes()
	if len(b) == 0 {
		return nil, err
	}
	return append(make([]byte, 0, len(b)), b...), err
}

func (d *Decoder) uint(id typeID) (uint64, error) {
	if id != idUint {
		return 0, errType
	}
	return d.in.uint()
}

func small[V ~uint8](d *Decoder, id typeID) (V, error) {
	u, err := d.uint(id)
	if u > math.MaxUint8 {
		return 0, errNumber
	}
	return V(u), err
}

func (d *Decoder) bool(id typeID) (bool, error) {
	if id != idBool {
		return false, errType
	}
	u, err := d.in.uint()
	return u != 0, err
}

func (d *Decoder) duration(id typeID) (time.Duration, error) {
	if id != idInt {
		return 0, errType
	}
	n, err := d.in.int()
	return time.Duration(n), err
}

func (d *Decoder) time(id typeID) (time.Time, error) {
	var t time.Time
	def := d.types[id]
	if def == nil || def.shape != shapeGob && def.shape != shapeBinary {
		return t, errType
	}
	b, err := d.in.bytes()
	if err != nil {
		return t, err
	}
	if err := t.UnmarshalBinary(b); err != nil {
		return t, inputError(err.Error())
	}
	return t, nil
}

// any reads an interface that holds a string or a number, as text. For other types it returns the type's name only.
func (d *Decoder) any(id typeID) (string, error) {
	if id != idInterface {
		return "", errType
	}
	b, err := d.in.bytes()
	if err != nil || len(b) == 0 {
		return "", err
	}
	name := string(b)
	if id, err = d.typeSequence(); err != nil {
		return "", err
	}
	value, err := d.in.bytes()
	if err != nil {
		return "", err
	}
	in := input{value}
	if id < firstID {
		if zero, err := in.uint(); err != nil || zero != 0 {
			return "", errType
		}
	}
	switch id {
	case idString:
		b, err := in.bytes()
		return string(b), err
	case idInt:
		n, err := in.int()
		return strconv.FormatInt(n, 10), err
	case idUint:
		n, err := in.uint()
		return strconv.FormatUint(n, 10), err
	}
	return name, nil
}

// skip skips a value of a type that no message uses.
func (d *Decoder) skip(id typeID, depth int) error {
	if depth > maxNesting {
		return errNesting
	}
	var err error
	switch id {
	case idBool, idInt, idUint, idFloat:
		_, err = d.in.uint()
		return err
	case idComplex:
		if _, err = d.in.uint(); err == nil {
			_, err = d.in.uint()
		}
		return err
	case idBytes, idString:
		_, err = d.in.bytes()
		return err
	case idInterface:
		_, err = d.any(id)
		return err
	}
	def := d.types[id]
	if def == nil {
		return errType
	}
	switch def.shape {
	case shapeStruct:
		return d.in.fields(func(f int) error {
			if f > len(def.fields) {
				return errType
			}
			return d.skip(def.fields[f-1].id, depth+1)
		})
	case shapeSlice, shapeArray, shapeMap:
		n, err := d.in.elementCount()
		for ; err == nil && n > 0; n-- {
			if def.shape == shapeMap {
				err = d.skip(def.key, depth+1)
			}
			if err == nil {
				err = d.skip(def.elem, depth+1)
			}
		}
		return err
	}
	_, err = d.in.bytes() // a value with its own encoding
	return err
}
