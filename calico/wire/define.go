package wire

// typeID is the number of a type in a gob stream.
type typeID int

// gob's predefined numbers.
const (
	idBool      typeID = 1
	idInt       typeID = 2
	idUint      typeID = 3
	idFloat     typeID = 4
	idBytes     typeID = 5
	idString    typeID = 6
	idComplex   typeID = 7
	idInterface typeID = 8
	firstID     typeID = 64 // smaller numbers are gob's
)

// This package's numbers, the same in every stream it writes.
const (
	idEnvelope typeID = firstID + 1 + iota
	idClientHello
	idServerHello
	idDecoderRestart
	idACK
	idSyncStatus
	idPing
	idPong
	idKVs
	idStrings
	idTime
	idKVSlice
	idKV
)

// typeID returns the number of a kind of message.
func (k kind) typeID() typeID { return idClientHello + typeID(k) }

// field is one field of a struct as gob defines it.
type field struct {
	name string
	id   typeID
}

// fields returns the fields of a kind of message, in the order in which AppendMessage writes them.
func (k kind) fields() []field {
	switch k {
	case kindClientHello:
		return []field{
			{"Hostname", idString},
			{"Info", idString},
			{"Version", idString},
			{"SyncerType", idString},
			{"SupportsDecoderRestart", idBool},
			{"SupportedCompressionAlgorithms", idStrings},
			{"ClientConnID", idUint},
			{"SupportsModernPolicyKeys", idBool},
		}
	case kindServerHello:
		return []field{
			{"Version", idString}, {"SyncerType", idString}, {"SupportsNodeResourceUpdates", idBool}, {"ServerConnID", idUint},
		}
	case kindDecoderRestart:
		return []field{{"Message", idString}, {"CompressionAlgorithm", idString}}
	case kindSyncStatus:
		return []field{{"SyncStatus", idUint}}
	case kindPing:
		return []field{{"Timestamp", idTime}}
	case kindPong:
		return []field{{"PingTimestamp", idTime}, {"PongTimestamp", idTime}}
	case kindKVs:
		return []field{{"KVs", idKVSlice}}
	}
	return nil
}

// kvFields returns the fields of a KV, in the order in which AppendKV writes them.
func kvFields() []field {
	return []field{
		{"Key", idString},
		{"Value", idBytes},
		{"Revision", idInterface},
		{"V3ResourceVersion", idString},
		{"TTL", idInt},
		{"UpdateType", idUint},
	}
}

// gob's numbers for the shapes of a definition: fields of its wireType.
const (
	shapeArray = 1 + iota
	shapeSlice
	shapeStruct
	shapeMap
	shapeGob
	shapeBinary
	shapeText
)

// AppendDefinitions appends the frames that define the envelope and the given messages' types. A stream must contain each
// definition once, before the first message of the type.
func AppendDefinitions(dst []byte, of ...Message) []byte {
	dst = defineStruct(dst, idEnvelope, "Envelope", []field{{"Message", idInterface}})
	var strings, time bool
	for _, m := range of {
		dst = appendDefinition(dst, m.kind(), &strings, &time)
	}
	return dst
}

// appendDefinition defines a kind of message, and the types it uses unless they are defined already.
func appendDefinition(dst []byte, k kind, strings, time *bool) []byte {
	switch k {
	case kindClientHello:
		if !*strings {
			*strings = true
			dst = defineSlice(dst, idStrings, "[]string", idString)
		}
	case kindPing, kindPong:
		if !*time {
			*time = true
			dst = frame(dst, func(b []byte) []byte { // a type with its own encoding
				b = append(appendInt(b, -int64(idTime)), shapeGob, 1)
				return append(appendCommon(b, idTime, "Time"), 0, 0)
			})
		}
	case kindKVs:
		dst = defineSlice(dst, idKVSlice, "[]KV", idKV)
		dst = defineStruct(dst, idKV, "KV", kvFields())
	}
	return defineStruct(dst, k.typeID(), k.name(), k.fields())
}

func defineStruct(dst []byte, id typeID, name string, fields []field) []byte {
	return frame(dst, func(b []byte) []byte {
		b = append(appendInt(b, -int64(id)), shapeStruct, 1)
		b = appendCommon(b, id, name)
		if len(fields) > 0 {
			b = appendUint(append(b, 1), uint64(len(fields)))
		}
		for _, f := range fields {
			b = appendText(append(b, 1), f.name)
			b = append(appendInt(append(b, 1), int64(f.id)), 0)
		}
		return append(b, 0, 0)
	})
}

func defineSlice(dst []byte, id typeID, name string, elem typeID) []byte {
	return frame(dst, func(b []byte) []byte {
		b = append(appendInt(b, -int64(id)), shapeSlice, 1)
		b = appendCommon(b, id, name)
		b = appendInt(append(b, 1), int64(elem))
		return append(b, 0, 0)
	})
}

// appendCommon appends the beginning of every definition: name and number.
func appendCommon(b []byte, id typeID, name string) []byte {
	b = appendText(append(b, 1), name)
	return append(appendInt(append(b, 1), int64(id)), 0)
}

// frame appends a gob message: length and body.
func frame(dst []byte, body func([]byte) []byte) []byte {
	b := body(nil)
	return append(appendUint(dst, uint64(len(b))), b...)
}
