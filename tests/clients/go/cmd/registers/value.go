package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// numberBytes are those of the number that a value begins with.
const numberBytes = 8

// valueOf is the value of a number: the number, then bytes that it determines and that do not compress.
func valueOf(number uint64, length int) []byte {
	value := make([]byte, max(length, numberBytes))
	binary.BigEndian.PutUint64(value, number)
	if length > numberBytes {
		var seed [32]byte
		binary.BigEndian.PutUint64(seed[:], number)
		// It never fails.
		_, _ = rand.NewChaCha8(seed).Read(value[numberBytes:])
	}
	return value
}

// numberOf is the number of a value that was written with this length. Any other value is an error.
func numberOf(value []byte, length int) (uint64, error) {
	if wanted := max(length, numberBytes); len(value) != wanted {
		return 0, fmt.Errorf("a value of %d bytes, not %d", len(value), wanted)
	}
	number := binary.BigEndian.Uint64(value)
	if length > numberBytes && !bytes.Equal(value, valueOf(number, length)) {
		return 0, fmt.Errorf("a value that begins as number %d goes on with other bytes", number)
	}
	return number, nil
}
