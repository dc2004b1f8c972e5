// KafkaJS, as a producer: see common.py for the command line.
'use strict'
const fs = require('fs')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')

const BLOCK_SIZE = 1 << 20
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy }
// Messages, and their bytes, in one send.
const SEND_COUNT = 5000
const SEND_BYTES = 1 << 20

const command = process.argv[2]
const options = { keyed: false }
for (let i = 3; i < process.argv.length; i++) {
  const name = process.argv[i].slice(2)
  options[name] = name === 'keyed' ? true : process.argv[++i]
}

// Values cut from the input.
function * values () {
  const bytes = fs.readFileSync(options.input)
  let from = 0
  while (from < bytes.length) {
    const end = options.split === 'lines' ? bytes.indexOf(10, from) : Math.min(from + BLOCK_SIZE, bytes.length)
    yield bytes.subarray(from, end)
    from = options.split === 'lines' ? end + 1 : end
  }
}

const bytesOf = hex => hex === '-' ? null : Buffer.from(hex, 'hex')

// A repeated header is a list in KafkaJS.
function headersOf (field) {
  const headers = {}
  for (const pair of field.split(',').filter(Boolean)) {
    const [name, value] = pair.split(':')
    const key = Buffer.from(name, 'hex').toString()
    headers[key] = key in headers ? [].concat(headers[key], bytesOf(value)) : bytesOf(value)
  }
  return headers
}

async function produce (producer) {
  const compression = CODECS[options.codec]
  let messages = []
  let size = 0
  const send = async () => {
    if (messages.length > 0) await producer.send({ topic: options.topic, acks: -1, compression, messages })
    messages = []
    size = 0
  }
  let number = 0
  for (const value of values()) {
    messages.push({ key: options.keyed ? String(number) : null, value })
    number += 1
    size += value.length
    if (messages.length >= SEND_COUNT || size >= SEND_BYTES) await send()
  }
  await send()
}

async function send (producer) {
  for (const line of fs.readFileSync(options.input, 'utf8').split('\n').filter(Boolean)) {
    const [partition, , timestamp, key, value, headers] = line.split('\t')
    const message = { partition: Number(partition), key: bytesOf(key), value: bytesOf(value), headers: headersOf(headers) }
    if (Number(timestamp) >= 0) message.timestamp = timestamp
    await producer.send({ topic: options.topic, acks: -1, messages: [message] })
  }
}

async function main () {
  const kafka = new Kafka({ brokers: [options.bootstrap], logLevel: logLevel.ERROR, retry: { retries: 0 } })
  const producer = kafka.producer()
  await producer.connect()
  await { produce, send }[command](producer)
  await producer.disconnect()
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
