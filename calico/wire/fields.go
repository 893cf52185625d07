package wire

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// definition is a type that the stream defines.
type definition struct {
	shape     int // of the wireType; 0: none given
	elem, key typeID
	fields    []field
}

// setter reads the value of one field from the stream into the message m.
type setter struct {
	id  typeID
	set func(d *Decoder, id typeID, m any) error // nil: skip
}

// plan has the setters of a struct's fields, for the Go type that was first read from it. A stream that uses one of its types for two of ours is
// malformed: a setter takes its own type only.
type plan struct {
	of     reflect.Type
	fields []setter
}

// maxNesting bounds values within values; this package's messages nest four deep.
const maxNesting = 32

// define reads one definition: gob's wireType, with exactly one field set.
func (d *Decoder) define(id typeID) error {
	if id < firstID || d.types[id] != nil {
		return errType
	}
	def := &definition{}
	err := d.in.fields(func(shape int) error {
		if def.shape != 0 || shape > shapeText {
			return errType
		}
		def.shape = shape
		return d.in.fields(func(f int) error { return d.definitionField(def, f) })
	})
	if err == nil && def.shape == 0 {
		err = errType
	}
	d.types[id] = def
	return err
}

// definitionField reads field f (from 1) of a definition: the first has name and number in all shapes.
func (d *Decoder) definitionField(def *definition, f int) error {
	switch {
	case f == 1:
		return d.in.fields(func(f int) error {
			if f == 1 {
				_, err := d.in.bytes()
				return err
			}
			_, err := d.in.int()
			return err
		})
	case def.shape == shapeStruct && f == 2:
		n, err := d.in.elementCount()
		for ; err == nil && n > 0; n-- {
			var fd field
			err = d.in.fields(func(f int) error {
				if f == 1 {
					name, err := d.in.bytes()
					fd.name = string(name)
					return err
				}
				id, err := d.in.int()
				fd.id = typeID(id)
				return err
			})
			def.fields = append(def.fields, fd)
		}
		return err
	case def.shape == shapeMap && f == 2:
		id, err := d.in.int()
		def.key = typeID(id)
		return err
	case f == 2 || def.shape == shapeMap && f == 3:
		id, err := d.in.int()
		def.elem = typeID(id)
		return err
	case def.shape == shapeArray && f == 3:
		_, err := d.in.int() // the length, which every value repeats
		return err
	}
	return errType
}

// fields reads a struct and calls read for each field that is present, counted from 1.
func (in *input) fields(read func(field int) error) error {
	at := uint64(0)
	for {
		delta, err := in.uint()
		if err != nil {
			return err
		}
		if delta == 0 {
			return nil
		}
		if at += delta; delta > 1<<16 || at > 1<<16 {
			return errNumber
		}
		if err := read(int(at)); err != nil {
			return err
		}
	}
}

// envelope reads Envelope{Message} and its message.
func (d *Decoder) envelope(id typeID) (Message, error) {
	var m Message
	def := d.types[id]
	if def == nil || def.shape != shapeStruct {
		return nil, errType
	}
	err := d.in.fields(func(f int) error {
		if f > len(def.fields) {
			return errType
		}
		fd := def.fields[f-1]
		if fd.name != "Message" || fd.id != idInterface {
			return d.skip(fd.id, 0)
		}
		var err error
		m, err = d.readMessage()
		return err
	})
	if err == nil && m == nil {
		err = inputError("no message in the envelope")
	}
	return m, err
}

// readMessage reads an interface that holds a message.
func (d *Decoder) readMessage() (Message, error) {
	b, err := d.in.bytes()
	if err != nil {
		return nil, err
	}
	name := string(b)
	id, err := d.typeSequence()
	if err != nil {
		return nil, err
	}
	if _, err := d.in.uint(); err != nil { // the length, for readers that skip the value
		return nil, err
	}
	name, ours := strings.CutPrefix(name, frozen)
	if !ours {
		return nil, inputError(fmt.Sprintf("message of type %.80q", name))
	}
	switch name {
	case kindClientHello.name():
		return decodeMessage[ClientHello](d, id)
	case kindServerHello.name():
		return decodeMessage[ServerHello](d, id)
	case kindDecoderRestart.name():
		return decodeMessage[DecoderRestart](d, id)
	case kindACK.name():
		return decodeMessage[ACK](d, id)
	case kindSyncStatus.name():
		return decodeMessage[SyncStatus](d, id)
	case kindPing.name():
		return decodeMessage[Ping](d, id)
	case kindPong.name():
		return decodeMessage[Pong](d, id)
	case kindKVs.name():
		return decodeMessage[KVs](d, id)
	}
	return nil, inputError(fmt.Sprintf("message of type %.80q", name))
}

func decodeMessage[M Message](d *Decoder, id typeID) (Message, error) {
	var m M
	if err := d.structure(id, &m, messageSetter); err != nil {
		return nil, fmt.Errorf("%s: %w", m.kind().name(), err)
	}
	return m, nil
}

// structure reads a struct of type id into m. find returns the setter of a field by name, nil to skip the field.
func (d *Decoder) structure(id typeID, m any, find func(m any, name string) func(*Decoder, typeID, any) error) error {
	p, ok := d.plans[id]
	if !ok {
		p.of = reflect.TypeOf(m)
		def := d.types[id]
		if def == nil || def.shape != shapeStruct {
			return errType
		}
		for _, f := range def.fields {
			p.fields = append(p.fields, setter{f.id, find(m, f.name)})
		}
		d.plans[id] = p
	}
	if p.of != reflect.TypeOf(m) {
		return errType
	}
	at := uint64(0)
	for {
		delta, err := d.in.uint()
		if err != nil || delta == 0 {
			return err
		}
		if at += delta; delta > uint64(len(p.fields)) || at > uint64(len(p.fields)) {
			return errType
		}
		s := p.fields[at-1]
		if s.set == nil {
			err = d.skip(s.id, 0)
		} else {
			err = s.set(d, s.id, m)
		}
		if err != nil {
			return err
		}
	}
}

// messageSetter returns the setter of a message's field.
func messageSetter(m any, name string) func(*Decoder, typeID, any) error {
	switch m.(type) {
	case *ClientHello:
		return helloSetter(name)
	case *ServerHello:
		switch name {
		case "Version":
			return into(func(m *ServerHello) *string { return &m.Version }, (*Decoder).decodeText)
		case "SyncerType":
			return into(func(m *ServerHello) *SyncerType { return &m.SyncerType }, syncerType)
		case "SupportsNodeResourceUpdates":
			return into(func(m *ServerHello) *bool { return &m.SupportsNodeResourceUpdates }, (*Decoder).bool)
		case "ServerConnID":
			return into(func(m *ServerHello) *uint64 { return &m.ServerConnID }, (*Decoder).uint)
		}
	case *DecoderRestart:
		switch name {
		case "Message":
			return into(func(m *DecoderRestart) *string { return &m.Message }, (*Decoder).decodeText)
		case "CompressionAlgorithm":
			return into(func(m *DecoderRestart) *string { return &m.CompressionAlgorithm }, (*Decoder).decodeText)
		}
	case *SyncStatus:
		if name == "SyncStatus" {
			return into(func(m *SyncStatus) *Status { return &m.SyncStatus }, small[Status])
		}
	case *Ping:
		if name == "Timestamp" {
			return into(func(m *Ping) *time.Time { return &m.Timestamp }, (*Decoder).time)
		}
	case *Pong:
		switch name {
		case "PingTimestamp":
			return into(func(m *Pong) *time.Time { return &m.PingTimestamp }, (*Decoder).time)
		case "PongTimestamp":
			return into(func(m *Pong) *time.Time { return &m.PongTimestamp }, (*Decoder).time)
		}
	case *KVs:
		if name == "KVs" {
			return into(func(m *KVs) *[]KV { return &m.KVs }, (*Decoder).kvs)
		}
	}
	return nil
}

func helloSetter(name string) func(*Decoder, typeID, any) error {
	switch name {
	case "Hostname":
		return into(func(m *ClientHello) *string { return &m.Hostname }, (*Decoder).decodeText)
	case "Info":
		return into(func(m *ClientHello) *string { return &m.Info }, (*Decoder).decodeText)
	case "Version":
		return into(func(m *ClientHello) *string { return &m.Version }, (*Decoder).decodeText)
	case "SyncerType":
		return into(func(m *ClientHello) *SyncerType { return &m.SyncerType }, syncerType)
	case "SupportsDecoderRestart":
		return into(func(m *ClientHello) *bool { return &m.SupportsDecoderRestart }, (*Decoder).bool)
	case "SupportedCompressionAlgorithms":
		return into(func(m *ClientHello) *[]string { return &m.SupportedCompressionAlgorithms }, (*Decoder).texts)
	case "ClientConnID":
		return into(func(m *ClientHello) *uint64 { return &m.ClientConnID }, (*Decoder).uint)
	case "SupportsModernPolicyKeys":
		return into(func(m *ClientHello) *bool { return &m.SupportsModernPolicyKeys }, (*Decoder).bool)
	}
	return nil
}

// kvSetter returns the setter of a KV's field.
func kvSetter(_ any, name string) func(*Decoder, typeID, any) error {
	switch name {
	case "Key":
		return into(func(kv *KV) *string { return &kv.Key }, (*Decoder).decodeText)
	case "Value":
		return into(func(kv *KV) *[]byte { return &kv.Value }, (*Decoder).bytes)
	case "Revision":
		return into(func(kv *KV) *string { return &kv.Revision }, (*Decoder).any)
	case "V3ResourceVersion":
		return into(func(kv *KV) *string { return &kv.V3ResourceVersion }, (*Decoder).decodeText)
	case "TTL":
		return into(func(kv *KV) *time.Duration { return &kv.TTL }, (*Decoder).duration)
	case "UpdateType":
		return into(func(kv *KV) *UpdateType { return &kv.UpdateType }, small[UpdateType])
	}
	return nil
}

// into returns a setter for the field of M that of returns, from a reader of its type V.
func into[M, V any](of func(*M) *V, read func(*Decoder, typeID) (V, error)) func(*Decoder, typeID, any) error {
	return func(d *Decoder, id typeID, m any) error {
		v, err := read(d, id)
		*of(m.(*M)) = v
		return err
	}
}
