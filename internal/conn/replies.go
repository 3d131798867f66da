package conn

import (
	"bytes"
	"fmt"
)

// A replies follows what a server sends, before redigo reads it (readReply in its conn.go). redigo makes room for as much as a
// server announces, reads a line however long it is, and calls itself for a list in a list. So one server that is compromised,
// or is none of Redis, could end the process with a few bytes: "$9223372036854775807" is a panic, and lists nested a million
// deep are a stack overflow, from which nobody can recover. The zero replies is for a new connection.
type replies struct {
	size int // of this reply, as far as it has come or was announced; see maxReply

	head [headSize]byte // the beginning of the line whose end has not come
	line int            // bytes of that line; above headSize, head has not all of it
	text int            // bytes that are still to come of a text, and of the end of its line

	left  [maxDepth]int // for each list that has begun, how many elements are still to come
	depth int           // how many lists these are
}

const (
	// maxReply bounds a reply: its bytes, and elementSize for each element of a list. All that the nodes are asked for is far
	// smaller, but for the key of another program that is inspected.
	maxReply    = 64 << 20
	elementSize = 64 // that an element takes in memory, if it is a short one
	// maxLine bounds a line: an error, a status, a number. Servers send what is long as a text, with its length in front.
	maxLine = 16 << 10
	// maxDepth bounds how deep lists are nested. The deepest that a script replies has two lists in a list.
	maxDepth = 16
	// headSize is for the length of a text or a list, with the kind in front and "\r" behind.
	headSize = 24
)

// follow takes what was read next. An error means that the connection must end, and that redigo must not get it.
func (r *replies) follow(read []byte) error {
	for len(read) > 0 {
		if r.text > 0 {
			skip := min(r.text, len(read))
			r.text, read = r.text-skip, read[skip:]
			continue
		}
		part, rest, ends := bytes.Cut(read, []byte{'\n'})
		if r.line < headSize {
			copy(r.head[r.line:], part)
		}
		if r.line += len(part); r.line > maxLine {
			return noRedis("a line of more than %d bytes", maxLine)
		}
		if ends {
			if err := r.endLine(); err != nil {
				return err
			}
		}
		read = rest
	}
	return nil
}

// endLine takes a line that has ended. What redigo refuses, with an error that ends the connection, may be anything here.
func (r *replies) endLine() error {
	size := r.line
	head := bytes.TrimSuffix(r.head[:min(size, headSize)], []byte{'\r'})
	if r.size += size; r.size > maxReply {
		return errTooLarge
	}
	r.line = 0
	if len(head) == 0 || head[0] != '$' && head[0] != '*' {
		r.endElement()
		return nil
	}
	if size > headSize {
		return noRedis("the length of a text or a list in %d digits", size)
	}
	count, isNumber := 0, len(head) > 1
	for _, c := range head[1:] {
		isNumber = isNumber && '0' <= c && c <= '9'
		count = min(10*count+int(c-'0'), maxReply+1)
	}
	switch {
	case !isNumber: // -1, which is nil
		r.endElement()
	case head[0] == '$':
		if r.size += count; r.size > maxReply {
			return errTooLarge
		}
		r.text = count + len("\r\n")
		r.endElement()
	default:
		return r.beginList(count)
	}
	return nil
}

func (r *replies) beginList(count int) error {
	switch {
	case count > (maxReply-r.size)/elementSize:
		return errTooLarge
	case count == 0:
		r.endElement()
		return nil
	case r.depth == maxDepth:
		return noRedis("lists that are nested more than %d deep", maxDepth)
	}
	r.size += count * elementSize
	r.left[r.depth] = count
	r.depth++
	return nil
}

// endElement ends an element, each list of which it is the last, and the reply if it is in no list.
func (r *replies) endElement() {
	for r.depth > 0 {
		if r.left[r.depth-1]--; r.left[r.depth-1] > 0 {
			return
		}
		r.depth--
	}
	r.size = 0
}

var errTooLarge = fmt.Errorf("it sent a reply of more than %d MiB: it is no Redis server, so check the port; or another program "+
	"keeps as much as that under the key of a lock", maxReply>>20)

func noRedis(format string, limit int) error {
	return fmt.Errorf("it sent "+format+": it is no Redis server, so check the port", limit)
}
