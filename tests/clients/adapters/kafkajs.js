// KafkaJS, as a producer and as a member of a group: see common.py for the command line.
'use strict'
const fs = require('fs')
const { Kafka, CompressionTypes, CompressionCodecs, PartitionAssigners, logLevel } = require('kafkajs')
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

// A member of a group, with the journal that journal.py describes. The client does not tell its generation.
async function group () {
  const journal = fs.openSync(options.journal, 'a')
  const write = (...lines) => {
    const now = process.hrtime.bigint() / 1000n
    fs.writeSync(journal, lines.map(line => `${now} ${line}\n`).join(''))
  }
  const retry = { initialRetryTime: 100, maxRetryTime: 500, retries: 100 }
  const kafka = new Kafka({ brokers: [options.bootstrap], logLevel: logLevel.NOTHING, retry })
  // Its own assigner is what others call roundrobin, under another name.
  const named = all => ({ ...PartitionAssigners.roundRobin(all), name: options.assignor })
  const session = Number(options.session)
  let owned = []
  const lost = () => {
    if (owned.length > 0) write(`lost ${owned.join(',')}`)
    owned = []
  }
  let consumer
  let stopping = false
  process.on('SIGTERM', async () => {
    stopping = true
    await consumer.disconnect()
    write('left')
    process.exit(0)
  })

  async function start () {
    consumer = kafka.consumer({
      groupId: options.group, sessionTimeout: session, heartbeatInterval: Math.floor(session / 6), rebalanceTimeout: 30000,
      partitionAssigners: [named], retry, maxWaitTimeInMs: 100
    })
    // Not at REBALANCING: when it cannot join then, the client goes on with what it has.
    consumer.on(consumer.events.GROUP_JOIN, event => {
      lost()
      owned = [...event.payload.memberAssignment[options.topic] ?? []].sort((a, b) => a - b)
      const all = owned.join(',') || '-'
      write(`gained - ${all} ${all}`)
    })
    consumer.on(consumer.events.CRASH, event => {
      console.error(event.payload.error)
      // What it takes for final, such as a coordinator that went away as it was asked for, is the program's to get over.
      if (!event.payload.restart && !stopping) {
        lost()
        consumer.disconnect().then(start, fail)
      }
    })
    try {
      await consumer.connect()
      await consumer.subscribe({ topic: options.topic, fromBeginning: true })
      await consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch })
    } catch (error) {
      // A connection that breaks while it starts is no reason for it to try again.
      if (!error.retriable || stopping) throw error
      console.error(error)
      await consumer.disconnect()
      await start()
    }
  }

  async function eachBatch ({ batch, resolveOffset, heartbeat, commitOffsetsIfNecessary, isRunning, isStale }) {
    if (!isRunning() || isStale()) return
    const { partition, messages } = batch
    write(...messages.map(message => `got ${partition} ${message.offset} ${message.value}`))
    const next = String(BigInt(messages[messages.length - 1].offset) + 1n)
    write(`committing ${partition}:${next}`)
    try {
      await commitOffsetsIfNecessary({ topics: [{ topic: options.topic, partitions: [{ partition, offset: next }] }] })
    } catch (error) {
      write(`refused ${partition}:${next} ${error.type ?? error.name}`)
      // The client reads the batch again, or joins again.
      if (owned.includes(partition)) write(`lost ${partition}`, `gained - ${partition} ${owned.join(',')}`)
      throw error
    }
    write(`committed ${partition}:${next}`)
    resolveOffset(messages[messages.length - 1].offset)
    await heartbeat()
  }

  await start()
}

async function main () {
  if (command === 'group') return group()
  const kafka = new Kafka({ brokers: [options.bootstrap], logLevel: logLevel.ERROR, retry: { retries: 0 } })
  const producer = kafka.producer()
  await producer.connect()
  await { produce, send }[command](producer)
  await producer.disconnect()
}

function fail (error) {
  console.error(error)
  process.exit(1)
}

main().catch(fail)
